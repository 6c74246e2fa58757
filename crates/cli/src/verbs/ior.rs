//! `punctual ior`: what a reference to an object of CORBA says.

use std::io::Read;

use anyhow::bail;
use clap::Args;
use punctual_giop::Reference;
use punctual_giop::characters::CodeSetId;
use punctual_giop::codeset::{CodeSets, Understood};
use punctual_giop::reference::component::{
    TAG_ALTERNATE_IIOP_ADDRESS, TAG_CODE_SETS, TAG_OMNIORB_UNIX_TRANS, TAG_ORB_TYPE, TAG_POLICIES,
    TAG_SSL_SEC_TRANS,
};
use punctual_giop::reference::corbaloc::Corbaloc;
use punctual_giop::reference::{
    Component, Error, IiopProfile, Link, Profile, TAG_INTERNET_IOP, TAG_MULTIPLE_COMPONENTS, UnixAddress,
};
use punctual_proto::text::harmless;
use serde::Serialize;

use crate::output::{Outcome, Output, Usage};

/// Explain a reference to a CORBA object: its interface, its addresses, and what else its server says.
#[derive(Args)]
#[command(after_help = "Examples:\n  punctual ior corbaloc:iiop:1.2@host:2809/NameService\n  \
                  punctual ior corbaname::host#a/b.c --json\n  punctual ior - < echo.ior")]
pub struct Ior {
    /// The reference: IOR:..., corbaloc:... or corbaname:...; "-" reads it from standard input.
    reference: String,
}

#[derive(Serialize)]
struct Explained {
    /// `IOR`, `corbaloc` or `corbaname`.
    form: &'static str,
    /// The repository identifier; empty if the reference does not say it.
    interface: String,
    is_nil: bool,
    /// The service that the ORB must know, instead of an address.
    service: Option<String>,
    /// The name in a naming context.
    name: Option<String>,
    profiles: Vec<ExplainedProfile>,
}

#[derive(Serialize)]
struct ExplainedProfile {
    transport: String,
    /// What is wrong with its bytes; then nothing else is known.
    mistake: Option<String>,
    version: Option<String>,
    address: Option<String>,
    key: Option<String>,
    key_hex: Option<String>,
    components: Vec<ExplainedComponent>,
}

#[derive(Serialize)]
struct ExplainedComponent {
    tag: u32,
    name: String,
    /// What it says, if this program knows it.
    value: Option<String>,
}

impl Ior {
    /// Explains the reference.
    ///
    /// # Errors
    /// [`Usage`] if it is none.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let text = if self.reference == "-" { from_standard_input()? } else { self.reference };
        let link: Link = text.trim().parse().map_err(|error: Error| Usage(error.to_string()))?;
        output.print(&explain(&link)?, text_of)?;
        Ok(Outcome::Done)
    }
}

fn from_standard_input() -> anyhow::Result<String> {
    let limit = punctual_giop::limits::REFERENCE_TEXT_BYTES_MAX as u64 + 2;
    let mut text = String::new();
    let read = std::io::stdin().take(limit).read_to_string(&mut text);
    read.map_err(|error| Usage(format!("standard input has no reference: {error}")))?;
    let references = text.lines().filter(|line| !line.trim().is_empty()).count();
    if references > 1 {
        bail!(Usage(format!("standard input has {references} lines: give one reference at a time")));
    }
    Ok(text)
}

fn explain(link: &Link) -> anyhow::Result<Explained> {
    let (form, at, name) = match link {
        Link::Reference(reference) => return Ok(explained("IOR", reference)),
        Link::Corbaloc(at) => ("corbaloc", at, None),
        Link::Corbaname(name) => ("corbaname", &name.context, name.name.as_ref().map(ToString::to_string)),
    };
    let reference = at.reference("")?.unwrap_or_default();
    let service = match at {
        Corbaloc::Resolve(service) => Some(service.clone()),
        Corbaloc::Places(..) => None,
    };
    let is_nil = reference.is_nil() && service.is_none();
    Ok(Explained { is_nil, service, name, ..explained(form, &reference) })
}

fn explained(form: &'static str, reference: &Reference) -> Explained {
    Explained {
        form,
        interface: reference.type_id.clone(),
        is_nil: reference.is_nil(),
        service: None,
        name: None,
        profiles: reference.profiles.iter().map(profile).collect(),
    }
}

fn profile(profile: &Profile) -> ExplainedProfile {
    let parsed = (profile.tag == TAG_INTERNET_IOP).then(|| IiopProfile::parse(&profile.data));
    let (parsed, mistake) = match parsed {
        Some(Err(error)) => (None, Some(error.to_string())),
        parsed => (parsed.and_then(Result::ok), None),
    };
    let key = parsed.as_ref().map(|parsed| &parsed.object_key);
    // Without a port, the server listens at Unix sockets only.
    let socket = parsed.as_ref().filter(|parsed| parsed.address.port == 0).and_then(unix_socket);
    let transport = match profile.tag {
        TAG_INTERNET_IOP if socket.is_some() => "omniunix".to_owned(),
        TAG_INTERNET_IOP => "IIOP".to_owned(),
        TAG_MULTIPLE_COMPONENTS => "components".to_owned(),
        other => format!("{other:#x}"),
    };
    ExplainedProfile {
        transport,
        mistake,
        version: parsed.as_ref().and_then(|_| version(profile)),
        address: socket.or_else(|| parsed.as_ref().map(|parsed| parsed.address.to_string())),
        key: key.map(|key| key.escape_ascii().to_string()),
        key_hex: key.map(|key| key.iter().map(|byte| format!("{byte:02x}")).collect()),
        components: parsed.iter().flat_map(|parsed| &parsed.components).map(component).collect(),
    }
}

/// The version that a profile says, behind its byte order. It may be later than those that this program knows.
fn version(profile: &Profile) -> Option<String> {
    let (_, numbers) = profile.data.split_first()?;
    let [major, minor] = numbers.first_chunk()?;
    Some(format!("{major}.{minor}"))
}

/// The first Unix socket of a profile.
fn unix_socket(profile: &IiopProfile) -> Option<String> {
    let mut sockets =
        profile.components.iter().filter_map(|component| component.unix_address().ok().flatten());
    sockets.next().map(|at| at_host(&at))
}

/// A `corbaloc:` does not say the host: it means this one.
fn at_host(at: &UnixAddress) -> String {
    if at.host.is_empty() { at.path.clone() } else { format!("{} on {}", at.path, at.host) }
}

fn component(component: &Component) -> ExplainedComponent {
    let (name, value) = match component.tag {
        TAG_ORB_TYPE => ("ORB type", component.orb_type().map(|orb| orb.map(orb_name))),
        TAG_CODE_SETS => ("code sets", code_sets(component)),
        TAG_POLICIES => ("policies", Ok(None)),
        TAG_ALTERNATE_IIOP_ADDRESS => {
            ("address", component.alternate_address().map(|address| address.map(|to| to.to_string())))
        }
        TAG_SSL_SEC_TRANS => ("SSL", Ok(None)),
        TAG_OMNIORB_UNIX_TRANS => {
            ("Unix socket", component.unix_address().map(|at| at.map(|at| at_host(&at))))
        }
        _ => ("unknown", Ok(None)),
    };
    let value = value.unwrap_or_else(|error| Some(error.to_string()));
    ExplainedComponent { tag: component.tag, name: name.to_owned(), value }
}

/// ORBs that are known by their numbers: the first bytes are the maker's initials.
fn orb_name(number: u32) -> String {
    match number {
        0x4154_5400 => "omniORB".into(),
        0x5441_4F00 => "TAO".into(),
        0x4A41_4300 => "JacORB".into(),
        0x5055_4E43 => "Punctual".into(),
        other => format!("{other:#x}"),
    }
}

fn code_sets(component: &Component) -> Result<Option<String>, Error> {
    let Some(sets) = CodeSets::of_component(component)? else { return Ok(None) };
    let name = |id: u32| CodeSetId(id).name().map_or_else(|| format!("{id:#x}"), str::to_owned);
    let list = |sets: &Understood| {
        let ids = [sets.native].into_iter().chain(sets.conversions.iter().copied());
        ids.map(name).collect::<Vec<_>>().join(", ")
    };
    Ok(Some(format!("{}; wide {}", list(&sets.characters), list(&sets.wide))))
}

fn text_of(explained: &Explained) -> String {
    let mut lines = vec![format!("form       {}", explained.form)];
    let interface = if explained.interface.is_empty() { "not said" } else { &explained.interface };
    lines.push(format!("interface  {interface}"));
    lines.extend(explained.is_nil.then(|| "a nil reference: it leads to no object".to_owned()));
    lines.extend(
        explained.service.iter().map(|service| format!("service    {service}, as the ORB is configured")),
    );
    lines.extend(explained.name.iter().map(|name| format!("name       {name}")));
    for profile in &explained.profiles {
        let version = profile.version.as_deref().unwrap_or_default();
        let address = profile.address.as_deref().unwrap_or_default();
        lines.push(format!("profile    {} {version} {address}", profile.transport).trim_end().to_owned());
        lines.extend(profile.mistake.iter().map(|mistake| format!("  damaged: {mistake}")));
        lines.extend(profile.key.iter().map(|key| format!("  key          {key}")));
        for component in &profile.components {
            let value = component.value.clone().unwrap_or_else(|| format!("tag {:#x}", component.tag));
            lines.push(format!("  {:<12} {value}", component.name));
        }
    }
    // Texts of a reference come from elsewhere: each stays in its line.
    let shown: Vec<_> = lines.iter().map(|line| harmless(line)).collect();
    shown.join("\n")
}
