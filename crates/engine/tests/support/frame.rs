//! Frames as they come in on a link.

/// A UDP packet from 10.2.0.2 to 10.2.0.1, from and to `port`.
pub fn frame(port: u16, packet: &[u8]) -> Vec<u8> {
    let udp_bytes = packet.len() as u16 + 8;
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend((udp_bytes + 20).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 2, 0, 2, 10, 2, 0, 1]);
    frame.extend(port.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend(udp_bytes.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(packet);
    frame
}
