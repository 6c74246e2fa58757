//! ssh and rsync over it: large files with checksums, in both directions.

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use crate::Size;
use crate::http::{content, same};
use crate::process::{Server, path_of, run};
use crate::table::{Figures, mb_per_s};
use crate::world::World;

const PORT: u16 = 2_222;

/// Makes keys and starts a server with them. Returns the words of the command that connects to it.
fn start(world: &World) -> Result<(Server, Vec<String>), String> {
    let folder = world.folder.display().to_string();
    for key in ["host", "user"] {
        let file = format!("{folder}/{key}");
        run(world.client_host(), 30, &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", &file])?;
    }
    let failed = |error: std::io::Error| error.to_string();
    std::fs::copy(world.folder.join("user.pub"), world.folder.join("authorized")).map_err(failed)?;
    std::fs::set_permissions(world.folder.join("authorized"), PermissionsExt::from_mode(0o600))
        .map_err(failed)?;
    // sshd confines its unprivileged part to this folder.
    std::fs::create_dir_all("/run/sshd").map_err(failed)?;
    let configuration = format!(
        "ListenAddress {}:{PORT}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nPidFile none\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\nUseDNS no\n",
        world.server_address()
    );
    std::fs::write(world.folder.join("sshd.conf"), configuration).map_err(failed)?;
    let sshd = path_of("sshd").ok_or("sshd is not installed")?.display().to_string();
    let server = world.serve(PORT, &[&sshd, "-D", "-e", "-f", &format!("{folder}/sshd.conf")])?;
    world.relay(PORT, "best-effort");
    let options = format!(
        "-F none -i {folder}/user -p {PORT} -o BatchMode=yes -o StrictHostKeyChecking=no \
         -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=20"
    );
    let words = ["ssh"].into_iter().chain(options.split_whitespace()).map(str::to_owned).collect();
    Ok((server, words))
}

pub fn ssh(world: &World, size: Size) -> Result<Figures, String> {
    let (_server, words) = start(world)?;
    let (folder, at) = (world.folder.display().to_string(), format!("root@{}", world.client_address()));
    let bytes = content(&world.folder.join("sent"), size.pick(16, 1_024))?;
    let (connect, mut figures) = (words.join(" "), Vec::new());
    for (what, script) in [
        ("to the client", format!("{connect} {at} cat {folder}/sent > {folder}/came")),
        ("to the server", format!("{connect} {at} 'cat > {folder}/came' < {folder}/sent")),
    ] {
        let begun = Instant::now();
        run(world.client_host(), 240, &["sh", "-c", &script])?;
        let seconds = begun.elapsed().as_secs_f64();
        same(world, [&world.folder.join("sent"), &world.folder.join("came")])?;
        figures.push((format!("a file {what}, {} MiB", bytes >> 20), "MB/s", mb_per_s(bytes, seconds)));
    }
    let begun = Instant::now();
    for _ in 0..5 {
        run(world.client_host(), 30, &["sh", "-c", &format!("{connect} {at} true")])?;
    }
    figures.push(("a login".to_owned(), "ms", begun.elapsed().as_secs_f64() * 200.0));
    Ok(figures)
}

pub fn rsync(world: &World, size: Size) -> Result<Figures, String> {
    let (_server, words) = start(world)?;
    let bytes = content(&world.folder.join("sent"), size.pick(16, 1_024))?;
    let (folder, connect, mut figures) = (world.folder.display().to_string(), words.join(" "), Vec::new());
    let (near, far) = (
        |name: &str| format!("{folder}/{name}"),
        |name: &str| format!("root@{}:{folder}/{name}", world.client_address()),
    );
    for (what, from, to) in
        [("to the client", far("sent"), near("came")), ("to the server", near("sent"), far("back"))]
    {
        let begun = Instant::now();
        run(world.client_host(), 240, &["rsync", "--whole-file", "-e", &connect, &from, &to])?;
        let seconds = begun.elapsed().as_secs_f64();
        let name = if to.ends_with("came") { "came" } else { "back" };
        same(world, [&world.folder.join("sent"), &world.folder.join(name)])?;
        figures.push((format!("a file {what}, {} MiB", bytes >> 20), "MB/s", mb_per_s(bytes, seconds)));
    }
    Ok(figures)
}
