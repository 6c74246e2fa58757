//! Bytes, frames and pools: reserved up to the last one, and released.

use super::*;
use crate::limits::FRAMES_GUARANTEED_DIVISOR;

/// Buffers of the node: counted to the byte, replaced by a new reservation, and released with the channel.
#[test]
fn buffers_are_reserved_to_the_byte() {
    let mut config = config();
    config.buffer_bytes_max = 1_000;
    let mut stages = stages_of(&config);
    for number in [1, 2] {
        hold(&mut stages, &local(number, Role::Sink));
    }
    let bytes = |bytes| Reserved { bytes, ..Reserved::default() };
    let [one, two] = [1, 2].map(ChannelId);
    let refusal = |wanted_bytes, free_bytes| {
        Err(RefuseCause::Buffers(RefusalReason::Buffers { wanted_bytes, free_bytes }))
    };
    assert_eq!(stages.reserve_buffers(one, bytes(600)), Ok(()));
    assert_eq!(stages.reserve_buffers(two, bytes(401)), refusal(401, 400));
    assert_eq!(stages.buffer_bytes(), 600, "nothing changed");
    assert_eq!(stages.reserve_buffers(two, bytes(400)), Ok(()));
    assert_eq!(stages.reserve_buffers(one, bytes(601)), refusal(601, 600));
    assert_eq!((stages.check_buffers(one, &bytes(600)), stages.buffer_bytes()), (Ok(()), 1_000));
    assert_eq!(stages.reserve_buffers(one, bytes(100)), Ok(()));
    assert_eq!((stages.buffer_bytes(), stages.check_buffers(two, &bytes(900))), (500, Ok(())));
    accounts_hold(&stages, &[1, 2]);
    stages.release(one);
    assert_eq!((stages.buffer_bytes(), stages.check_buffers(two, &bytes(1_000))), (400, Ok(())));
    assert_eq!(stages.check_buffers(two, &bytes(1_001)), refusal(1_001, 1_000));
    accounts_hold(&stages, &[2]);
}

/// Frames of a link's driver: half of them are for channels, separately for each link. A refusal is reported
/// in bytes of whole frames.
#[test]
fn frames_are_reserved_link_by_link() {
    let mut config = config();
    config.links[0].frames = 512;
    let frame_bytes = u64::from(config.links[0].packet_bytes_max);
    let most = 512 / FRAMES_GUARANTEED_DIVISOR;
    let mut stages = stages_of(&config);
    for number in [1, 2] {
        hold(&mut stages, &local(number, Role::Sink));
    }
    let frames = |link, frames| Reserved { bytes: 1, frames: Some((link, frames)), pooled: None };
    let [one, two] = [1, 2].map(ChannelId);
    let refusal = |wanted: u32, free: u32| {
        let (wanted_bytes, free_bytes) = (u64::from(wanted) * frame_bytes, u64::from(free) * frame_bytes);
        Err(RefuseCause::Buffers(RefusalReason::Buffers { wanted_bytes, free_bytes }))
    };
    assert_eq!(stages.reserve_buffers(one, frames(LEFT, most + 1)), refusal(most + 1, most));
    assert_eq!(stages.reserve_buffers(one, frames(LEFT, most - 3)), Ok(()));
    assert_eq!(stages.reserve_buffers(two, frames(LEFT, 4)), refusal(4, 3));
    assert_eq!(stages.check_buffers(two, &frames(RIGHT, 1_000)), Ok(()));
    assert_eq!(stages.reserve_buffers(two, frames(LEFT, 3)), Ok(()));
    accounts_hold(&stages, &[1, 2]);
    assert_eq!(stages.reserve_buffers(one, frames(LEFT, most - 2)), refusal(most - 2, most - 3));
    assert_eq!(stages.reserve_buffers(one, frames(LEFT, 10)), Ok(()), "its own are replaced");
    assert_eq!(stages.check_buffers(two, &frames(LEFT, most - 10)), Ok(()));
    assert_eq!(stages.check_buffers(two, &frames(LEFT, most - 9)), refusal(most - 9, most - 10));
    stages.release(one);
    assert_eq!(stages.check_buffers(two, &frames(LEFT, most)), Ok(()));
    accounts_hold(&stages, &[2]);
    stages.release(two);
    assert_eq!((stages.links[0].frames, stages.links[1].frames), (0, 0));
}

/// Soft channels share frames: as many as the pool's formula requires for the present channels, fewer than
/// their sum, beside the hard channels' own frames.
#[test]
fn soft_channels_share_a_pool_of_frames() {
    use punctual_analysis::buffers::{PoolPart, pooled};
    let ratio = Ppb::new(1_000_000).expect("a ratio");
    let part = PoolPart { most: 10, period: MS(10), mean_period: MS(100) };
    let pool_of = |count: usize| pooled(&vec![part; count], ratio);
    assert!(pool_of(8) < 60, "{}", pool_of(8));
    let own = Pooled { period: part.period, mean_period: part.mean_period, ratio };
    let soft = Reserved { bytes: 1, frames: Some((LEFT, part.most)), pooled: Some(own) };
    let hard = |frames| Reserved { bytes: 1, frames: Some((LEFT, frames)), pooled: None };
    let mut config = config();
    config.links[0].frames = 512;
    let most = 512 / FRAMES_GUARANTEED_DIVISOR;
    let mut stages = stages_of(&config);
    for number in 0..10 {
        hold(&mut stages, &local(number, Role::Sink));
    }
    for number in 0..8_u64 {
        assert_eq!(stages.reserve_buffers(ChannelId(number), soft), Ok(()));
        assert_eq!(stages.pool_frames(LEFT), pool_of(number as usize + 1));
        assert_eq!((stages.pool_frames(RIGHT), stages.links[0].frames), (0, 0));
    }
    accounts_hold(&stages, &(0..10).collect::<Vec<_>>());
    let hard_one = ChannelId(8);
    // For a channel that is not part of it, the size of the pool is fixed.
    assert_eq!(stages.check_buffers(hard_one, &hard(most - pool_of(8))), Ok(()));
    assert!(stages.check_buffers(hard_one, &hard(most - pool_of(8) + 1)).is_err());
    assert_eq!(stages.reserve_buffers(hard_one, hard(most - pool_of(9))), Ok(()));
    assert_eq!(stages.check_buffers(ChannelId(9), &soft), Ok(()));
    assert_eq!(stages.reserve_buffers(hard_one, hard(most - pool_of(9) + 1)), Ok(()));
    assert!(stages.check_buffers(ChannelId(9), &soft).is_err(), "one more in the pool");
    assert_eq!(stages.check_buffers(ChannelId(0), &soft), Ok(()), "one that is in it");
    // A stricter channel makes the whole pool larger; without it the pool is as before.
    let strict = Pooled { ratio: Ppb::new(10).expect("a ratio"), ..own };
    assert_eq!(stages.reserve_buffers(hard_one, hard(1)), Ok(()));
    let strict = Reserved { pooled: Some(strict), ..soft };
    assert_eq!(stages.reserve_buffers(ChannelId(9), strict), Ok(()));
    assert!(stages.pool_frames(LEFT) > pool_of(9));
    stages.release(ChannelId(9));
    assert_eq!(stages.pool_frames(LEFT), pool_of(8));
    for number in 0..8 {
        stages.release(ChannelId(number));
    }
    assert_eq!((stages.pool_frames(LEFT), stages.link_accounts(LEFT)[1]), (0, ("parts of a pool", [0, 0])));
    accounts_hold(&stages, &[8]);
}
