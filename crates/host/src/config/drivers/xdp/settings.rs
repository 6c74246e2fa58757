//! Links over AF_XDP: the settings of one link, and opening all links of a host together.

use punctual_link::kernel::{
    CareOptions, Device, Follow, FollowError, FollowedLink, Mac, Opener, PathRequest, follow,
};
use punctual_link::xdp::{Addresses, ClassifierOptions, XdpLink, XdpMemory, XdpOptions, ZeroCopy};
use punctual_link::{Link, LinkError, Spins};

use punctual_os::calls::{self, Forbidden, ThreadKind};

/// Sizes of frames that the kernel accepts on pages of 4 KiB.
const FRAME_BYTES: [usize; 2] = [2_048, 4_096];
/// Bytes of a frame in front of a packet, as in `XdpMemory::packet_bytes_max` (tested).
const HEADROOM_BYTES: usize = 320;
/// Longest packet, from our header on.
pub(super) const PACKET_BYTES_MAX: u32 = (FRAME_BYTES[1] - HEADROOM_BYTES) as u32;

/// Settings of a link over AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpSettings {
    /// Device, addresses, ports, maximum packet length and the program's mode.
    pub classifier: ClassifierOptions,
    /// The device's queue.
    pub queue: u32,
    /// Frames that the node counts on.
    pub frames: u32,
    /// Whether the kernel copies.
    pub zero_copy: ZeroCopy,
    /// Settings that the device must have.
    pub care: CareOptions,
    /// How long to poll for packets before sleeping.
    pub spins: Spins,
    /// No pace was configured: completions pace the link if the device has a pace of its own.
    pub pace_by_device: bool,
}

impl XdpSettings {
    fn options(&self) -> XdpOptions {
        let Self { classifier, queue, frames, zero_copy, .. } = self;
        let ClassifierOptions { device, local, peer, data_port, signalling_port, .. } = classifier;
        let options = XdpOptions::new(device, *local, *peer, *data_port, *signalling_port);
        let options =
            XdpOptions { classifier: classifier.clone(), queue: *queue, zero_copy: *zero_copy, ..options };
        options.with_frames(*frames)
    }

    /// The way that it goes, for `doctor` and for opening it.
    pub fn request(&self) -> PathRequest {
        PathRequest {
            device: self.classifier.device.clone(),
            local: self.classifier.local,
            peer: self.classifier.peer,
            queue: self.queue,
            packet_bytes_max: self.classifier.packet_bytes_max,
        }
    }

    /// Bytes of memory that its frames take, all of it locked; `frame_bytes` for all links of a host.
    pub fn memory_bytes(&self, frame_bytes: usize) -> u64 {
        u64::from(self.options().frames_needed()) * frame_bytes as u64
    }
}

/// Size of the frames of a host: that of its longest packet.
pub fn frame_bytes<'a>(links: impl IntoIterator<Item = &'a XdpSettings>) -> usize {
    let longest = links.into_iter().map(|link| link.classifier.packet_bytes_max as usize).max().unwrap_or(0);
    let fits = |bytes: &&usize| longest + HEADROOM_BYTES <= **bytes;
    // What fits none is refused when the file is read.
    *FRAME_BYTES.iter().find(fits).unwrap_or(&FRAME_BYTES[1])
}

/// Opens all links over one memory area, so that forwarded packets are not copied. From now on their devices
/// are watched.
///
/// # Errors
/// The first link that cannot be opened, by its place in the list (no place: none can be opened).
pub(super) fn open(links: &[&XdpSettings], forbidden: Forbidden) -> Result<Vec<FollowedLink>, FollowError> {
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let frames = links.iter().fold(0, |sum: u32, link| sum.saturating_add(link.options().frames_needed()));
    let memory = XdpMemory::new(frames, frame_bytes(links.iter().copied()))
        .map_err(|error| FollowError { link: None, error })?;
    let follows = links.iter().map(|link| {
        // No neighbour is reachable before the path is found.
        let addresses = Addresses::new(Mac::default(), None);
        let options = XdpOptions { addresses: Some(addresses.clone()), ..link.options() };
        let opener = Box::new(XdpOpener { options, addresses, memory: memory.clone() });
        Follow { request: link.request(), care: link.care, spins: link.spins, opener }
    });
    follow(follows.collect(), move || calls::confine(ThreadKind::Links, forbidden))
}

struct XdpOpener {
    options: XdpOptions,
    addresses: Addresses,
    memory: XdpMemory,
}

impl Opener for XdpOpener {
    fn open(&mut self, _: &Device) -> Result<Box<dyn Link>, LinkError> {
        Ok(Box::new(XdpLink::open(&self.options, &self.memory)?))
    }

    fn set_addresses(&mut self, source: Mac, destination: Option<Mac>) {
        self.addresses.set_source(source);
        self.addresses.set_peer(destination);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_size_that_the_memory_declares() {
        for bytes in FRAME_BYTES {
            let memory = XdpMemory::new(1, bytes).expect("one frame");
            assert_eq!(memory.packet_bytes_max(), bytes - HEADROOM_BYTES);
        }
    }
}
