//! nginx and curl: one large file with its checksum, many small files over one connection, and many small files over a connection
//! each.

use std::path::Path;
use std::time::Instant;

use crate::Size;
use crate::process::run as run_program;
use crate::table::{Figures, mb_per_s};
use crate::world::World;

const PORT: u16 = 8_080;
const SMALL_BYTES: usize = 512;

/// Writes a file of bytes that do not repeat. Returns its length.
pub fn content(file: &Path, mib: u64) -> Result<u64, String> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut out = std::io::BufWriter::new(std::fs::File::create(file).map_err(|error| error.to_string())?);
    for _ in 0..mib << 17 {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::io::Write::write_all(&mut out, &state.to_le_bytes()).map_err(|error| error.to_string())?;
    }
    std::io::Write::flush(&mut out).map_err(|error| error.to_string())?;
    Ok(mib << 20)
}

/// Whether two files are equal, by checksums.
pub fn same(world: &World, files: [&Path; 2]) -> Result<(), String> {
    let [sent, came] = files.map(|file| {
        let sum = run_program(world.client_host(), 60, &["sha256sum", &file.display().to_string()])?;
        Ok::<_, String>(String::from_utf8_lossy(&sum).split(' ').next().unwrap_or_default().to_owned())
    });
    let (sent, came) = (sent?, came?);
    if sent == came { Ok(()) } else { Err(format!("checksums differ: {sent} was sent, {came} came")) }
}

fn configuration(world: &World) -> String {
    let folder = world.folder.display();
    format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; user root;
        events {{ worker_connections 512; }}
        http {{ access_log off; sendfile on; keepalive_requests 1000000; default_type application/octet-stream;
          client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
          uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
          server {{ listen {}:{PORT}; root {folder}/www; }} }}",
        world.server_address()
    )
}

fn requests(world: &World, count: u32, options: &[&str], connections: u32) -> Result<f64, String> {
    let url = format!("http://{}:{PORT}/small?[1-{count}]", world.client_address());
    let mut line = vec![
        "curl",
        "-sS",
        "-q",
        "--fail",
        "-w",
        "%{stderr}%{num_connects} %{http_code}\n",
        "--max-time",
        "120",
    ];
    line.extend(options);
    line.push(&url);
    // The report of each request follows on standard error: it goes into the same pipe behind a shell.
    let script = format!("exec {} 2>&1 >{}/got", shell_line(&line), world.folder.display());
    let begun = Instant::now();
    let reports = run_program(world.client_host(), 180, &["sh", "-c", &script])?;
    let seconds = begun.elapsed().as_secs_f64();
    let reports = String::from_utf8_lossy(&reports);
    let good: Vec<u32> = reports
        .lines()
        .filter_map(|line| line.strip_suffix(" 200").and_then(|connects| connects.parse().ok()))
        .collect();
    let opened: u32 = good.iter().sum();
    if good.len() != count as usize || opened != connections {
        return Err(format!("{} of {count} requests, {opened} of {connections} connections", good.len()));
    }
    let small = std::fs::read(world.folder.join("www/small")).map_err(|error| error.to_string())?;
    let got = std::fs::read(world.folder.join("got")).map_err(|error| error.to_string())?;
    if got.len() != small.len() * count as usize || !got.chunks_exact(small.len()).all(|body| body == small) {
        return Err(format!("{} bytes of bodies, some of them wrong", got.len()));
    }
    Ok(f64::from(count) / seconds)
}

fn shell_line(words: &[&str]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

pub fn run(world: &World, size: Size) -> Result<Figures, String> {
    let www = world.folder.join("www");
    std::fs::create_dir_all(&www).map_err(|error| error.to_string())?;
    let bytes = content(&www.join("large"), size.pick(16, 1_024))?;
    std::fs::write(www.join("small"), vec![b'x'; SMALL_BYTES]).map_err(|error| error.to_string())?;
    let file = world.folder.join("nginx.conf");
    std::fs::write(&file, configuration(world)).map_err(|error| error.to_string())?;
    let _server = world.serve(PORT, &["nginx", "-c", &file.display().to_string()])?;
    world.relay(PORT, "best-effort");

    let came = world.folder.join("came");
    let url = format!("http://{}:{PORT}/large", world.client_address());
    let target = came.display().to_string();
    let options = ["-w", "%{time_total}", "--max-time", "240"];
    let line = [&["curl", "-sS", "-q", "--fail", "-o", &target][..], &options, &[&url]].concat();
    let seconds = run_program(world.client_host(), 250, &line)?;
    let seconds: f64 =
        String::from_utf8_lossy(&seconds).trim().parse().map_err(|error| format!("{error}"))?;
    same(world, [&www.join("large"), &came])?;
    let (many, few) = (size.pick(200, 10_000), size.pick(50, 500));
    let kept = requests(world, many, &[], 1)?;
    let closed = requests(world, few, &["-H", "Connection: close"], few)?;
    Ok(vec![
        (format!("a file of {} MiB", bytes >> 20), "MB/s", mb_per_s(bytes, seconds)),
        (format!("{many} requests, 1 connection"), "1/s", kept),
        (format!("{few} connections, 1 request each"), "1/s", closed),
    ])
}
