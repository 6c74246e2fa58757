//! Many FIFO queues in one slab: an item moves in and out without an allocation, and memory is reserved for all queues
//! together, not for each.
//!
//! A [`Fifo`] belongs to exactly one slab and is emptied through it.

use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// A place in a slab, or none: the position of an item, or of the next item in its queue. The item stores the
/// latter, because it may have room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next(u32);

impl Next {
    pub(crate) const NONE: Self = Self(NONE);
}

/// An item of a slab.
pub(crate) trait Linked {
    fn next_mut(&mut self) -> &mut Next;
    fn next(&self) -> Next;
}

/// Aligned so that it is never on more cache lines than needed.
#[derive(Debug)]
#[repr(align(32))]
struct Slot<T>(Option<T>);

/// Slots of the shortest run. More room is added as further runs: nothing moves, and memory that is no longer
/// needed is freed in runs. The length lets allocators give a run pages of its own; with 256 slots a channel
/// took 60 B more in a network of 100 nodes.
const RUN_SLOTS_MIN: usize = 1_024;
/// Slots of the longest run, for large bursts. Each run costs two calls of the allocator, and 64 runs for one
/// channel made turns of 0.3 ms. It is no longer than this, so that a run fits into the pieces of memory that
/// allocators have. Places are numbered as if all runs were this long.
const RUN_SLOTS_MAX: usize = 8 * RUN_SLOTS_MIN;
/// Spare slots, if they are in a run of their own: opening and closing a channel allocates nothing.
const SLOTS_SPARE: usize = RUN_SLOTS_MIN;
/// Slots, used before and empty now, that one call frees: it visits each.
const FREED_SLOTS: usize = 256;
const RUNS_PER_WORD: usize = u64::BITS as usize;

/// The slots, in runs. Items go to the first run that has a free slot, so that the last ones become empty.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    /// Runs by place. An empty run marks a place whose run was freed.
    runs: Vec<Run<T>>,
    /// A bit for each run that has a free slot.
    vacant: Vec<u64>,
    /// A bit for each run that was freed: a new run takes its place.
    absent: Vec<u64>,
    /// Slots of all runs, used or not.
    present: usize,
    used: usize,
    /// Items for which [`Slab::add_room`] has reserved.
    room: usize,
    /// Runs that are not needed any more and have many slots that were used: freeing them visits each slot.
    leaving: Vec<Run<T>>,
}

/// Slots, and the free ones, the last used on top because it is still in the cache.
#[derive(Debug)]
struct Run<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u16>,
}

impl<T> Run<T> {
    const NONE: Self = Self { slots: Vec::new(), free: Vec::new() };

    fn new(slots: usize) -> Self {
        Self { slots: Vec::with_capacity(slots), free: Vec::with_capacity(slots) }
    }

    const fn is_present(&self) -> bool {
        self.slots.capacity() > 0
    }

    /// Whether the run can be freed when `present` slots exist and `needed` are needed.
    const fn can_go(&self, present: usize, needed: usize) -> bool {
        let slots = self.slots.capacity();
        let spare = if slots <= SLOTS_SPARE { SLOTS_SPARE } else { 0 };
        self.is_present() && self.is_unused() && present >= slots + needed + spare
    }

    const fn is_unused(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    const fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == self.slots.capacity()
    }
}

/// One queue in the slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fifo {
    head: u32,
    tail: u32,
}

impl Fifo {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

impl<T: Linked> Slab<T> {
    /// Memory that room for an item takes, in bytes.
    pub(crate) const ITEM_BYTES: usize = size_of::<Slot<T>>() + size_of::<u16>();

    pub(crate) const fn new() -> Self {
        Self {
            runs: Vec::new(),
            vacant: Vec::new(),
            absent: Vec::new(),
            present: 0,
            used: 0,
            room: 0,
            leaving: Vec::new(),
        }
    }

    /// Room for `capacity` items altogether, so that neither `push` nor `pop` allocates.
    pub(crate) fn reserve(&mut self, capacity: usize) {
        while self.present < capacity {
            let slots = (capacity - self.present).next_multiple_of(RUN_SLOTS_MIN).min(RUN_SLOTS_MAX);
            let place = first(&self.absent).unwrap_or(self.runs.len());
            if place == self.runs.len() {
                self.runs.push(Run::new(slots));
                let words = self.runs.len().div_ceil(RUNS_PER_WORD);
                self.vacant.resize(words, 0);
                self.absent.resize(words, 0);
            } else {
                self.runs[place] = Run::new(slots);
                set(&mut self.absent, place, false);
            }
            self.present += slots;
            set(&mut self.vacant, place, true);
        }
    }

    /// Adds room for `items` more.
    pub(crate) fn add_room(&mut self, items: u32) {
        self.room += items as usize;
        self.reserve(self.room);
    }

    /// Releases room for `items`. Runs that are not needed any more and hold nothing are freed. A run that
    /// still holds something is freed by a later call.
    pub(crate) fn remove_room(&mut self, items: u32) {
        self.room -= items as usize;
        let needed = self.room.max(self.used);
        for place in (0..self.runs.len()).rev() {
            if self.present <= needed + SLOTS_SPARE {
                break;
            }
            if self.runs[place].can_go(self.present, needed) {
                self.present -= self.runs[place].slots.capacity();
                let run = core::mem::replace(&mut self.runs[place], Run::NONE);
                if run.slots.len() > FREED_SLOTS {
                    self.leaving.push(run);
                }
                set(&mut self.vacant, place, false);
                set(&mut self.absent, place, true);
            }
        }
        // Places behind the last run are never accessed.
        while self.runs.last().is_some_and(|run| !run.is_present()) {
            self.runs.pop();
            set(&mut self.absent, self.runs.len(), false);
        }
    }

    /// Whether [`Slab::free_some`] has something to do.
    pub(crate) const fn has_leftovers(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Frees some memory that is not needed any more, in bounded time.
    pub(crate) fn free_some(&mut self) {
        let Some(run) = self.leaving.last_mut() else { return };
        run.slots.truncate(run.slots.len().saturating_sub(FREED_SLOTS));
        if run.slots.is_empty() {
            self.leaving.pop();
        }
    }

    /// The first run that has a free slot. Reads one word for each 64 runs.
    fn first_vacant(&self) -> Option<usize> {
        first(&self.vacant)
    }

    /// Items in all queues.
    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// All items of the slab, whatever queue they are in.
    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.runs.iter().flat_map(|run| &run.slots).filter_map(|slot| slot.0.as_ref())
    }

    /// Puts an item at the end of a queue; returns its place.
    pub(crate) fn push(&mut self, fifo: &mut Fifo, item: T) -> Next {
        let index = self.take_slot(item);
        match self.at_mut(Next(fifo.tail)) {
            Some(tail) => *tail.next_mut() = Next(index),
            None => fifo.head = index,
        }
        fifo.tail = index;
        Next(index)
    }

    /// The item at a place.
    pub(crate) fn at(&self, place: Next) -> Option<&T> {
        let index = place.0 as usize;
        self.runs.get(index / RUN_SLOTS_MAX)?.slots.get(index % RUN_SLOTS_MAX)?.0.as_ref()
    }

    pub(crate) fn at_mut(&mut self, place: Next) -> Option<&mut T> {
        self.slot_mut(place.0)?.0.as_mut()
    }

    /// The place of the item with `before` others before it in its queue. Takes a step for each of these.
    pub(crate) fn place(&self, fifo: &Fifo, before: u64) -> Option<Next> {
        let behind = |place: &Next| self.at(*place).map(Linked::next).filter(|next| *next != Next::NONE);
        core::iter::successors(Some(Next(fifo.head)), behind).nth(usize::try_from(before).ok()?)
    }

    pub(crate) fn front(&self, fifo: &Fifo) -> Option<&T> {
        self.at(Next(fifo.head))
    }

    pub(crate) fn back(&self, fifo: &Fifo) -> Option<&T> {
        self.at(Next(fifo.tail))
    }

    /// The items of a queue, from the head on.
    pub(crate) fn iter(&self, fifo: &Fifo) -> impl Iterator<Item = &T> {
        let behind = |item: &&T| self.at(item.next());
        core::iter::successors(self.front(fifo), behind)
    }

    pub(crate) fn pop(&mut self, fifo: &mut Fifo) -> Option<T> {
        let item = self.slot_mut(fifo.head)?.0.take()?;
        self.give_slot_back(fifo.head as usize);
        fifo.head = item.next().0;
        if fifo.head == NONE {
            fifo.tail = NONE;
        }
        Some(item)
    }

    fn take_slot(&mut self, item: T) -> u32 {
        let place = match self.first_vacant() {
            Some(place) => place,
            None => {
                self.reserve(self.present + 1);
                self.first_vacant().unwrap_or_default()
            }
        };
        let run = &mut self.runs[place];
        let slot = match run.free.pop() {
            Some(slot) => {
                run.slots[usize::from(slot)].0 = Some(item);
                usize::from(slot)
            }
            None => {
                run.slots.push(Slot(Some(item)));
                run.slots.len() - 1
            }
        };
        if run.is_full() {
            set(&mut self.vacant, place, false);
        }
        self.used += 1;
        (place * RUN_SLOTS_MAX + slot) as u32
    }

    fn give_slot_back(&mut self, index: usize) {
        let place = index / RUN_SLOTS_MAX;
        self.runs[place].free.push((index % RUN_SLOTS_MAX) as u16);
        set(&mut self.vacant, place, true);
        self.used -= 1;
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        let index = index as usize;
        self.runs.get_mut(index / RUN_SLOTS_MAX)?.slots.get_mut(index % RUN_SLOTS_MAX)
    }
}

/// A bit for each run.
fn set(bits: &mut [u64], run: usize, is_set: bool) {
    let (word, bit) = (&mut bits[run / RUNS_PER_WORD], 1 << (run % RUNS_PER_WORD));
    *word = if is_set { *word | bit } else { *word & !bit };
}

/// The first run whose bit is set.
fn first(bits: &[u64]) -> Option<usize> {
    let word = bits.iter().position(|word| *word != 0)?;
    Some(word * RUNS_PER_WORD + bits[word].trailing_zeros() as usize)
}

/// Room for `capacity` items altogether, and, where that grows, for half as many more: fewer moves and holes.
/// Moves only existing items: memory that was never used is not touched.
pub(crate) fn reserve<T>(items: &mut Vec<T>, capacity: usize) {
    if capacity > items.capacity() {
        let ahead = if items.capacity() > 0 { capacity / 2 } else { 0 };
        let mut larger = Vec::with_capacity(capacity + ahead);
        larger.append(items);
        *items = larger;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items that are added one by one are moved a number of times that grows with the logarithm of their number, and no more
    /// than half of the room is to spare.
    #[test]
    fn room_grows_by_half() {
        let (mut items, mut moves) = (Vec::<u8>::new(), 0);
        for number in 1..=10_000 {
            let before = items.capacity();
            reserve(&mut items, number);
            items.push(0);
            moves += u32::from(items.capacity() != before);
            assert!(items.capacity() <= number + number / 2, "{} for {number}", items.capacity());
        }
        assert!(moves <= 21, "log(10,000)/log(1.5) is 22.7: {moves}");
        // The first time nothing is to spare: it may stay at that.
        let mut items = Vec::<u64>::new();
        reserve(&mut items, 100);
        assert_eq!(items.capacity(), 100);
    }

    struct Item(u32, Next);

    impl Linked for Item {
        fn next_mut(&mut self) -> &mut Next {
            &mut self.1
        }
        fn next(&self) -> Next {
            self.1
        }
    }

    /// Absent slots cannot be freed, however many others there are: the count of present slots never includes
    /// them.
    #[test]
    fn only_a_run_that_is_there_and_unused_can_go() {
        let run = |slots| Run::<Item>::new(slots);
        assert!(!Run::<Item>::NONE.can_go(1_000_000, 0));
        for slots in [1, SLOTS_SPARE + 1] {
            let spare = if slots == 1 { SLOTS_SPARE } else { 0 };
            let needed = slots + 9 + spare;
            assert_eq!(
                [needed, needed - 1].map(|present| run(slots).can_go(present, 9)),
                [true, false],
                "{slots}"
            );
            let mut used = run(slots);
            used.slots.push(Slot(None));
            assert!(!used.can_go(needed, 9), "{slots}");
        }
    }

    fn numbers(slab: &Slab<Item>, fifo: &Fifo) -> Vec<u32> {
        slab.iter(fifo).map(|item| item.0).collect()
    }

    #[test]
    fn queues_keep_their_own_order_in_shared_slots() {
        let (mut slab, mut even, mut odd) = (Slab::new(), Fifo::EMPTY, Fifo::EMPTY);
        slab.reserve(8);
        let room =
            |slab: &Slab<Item>| (slab.present, slab.runs[0].slots.capacity(), slab.runs[0].free.capacity());
        let before = room(&slab);
        for turn in 0..100 {
            for number in 0..8 {
                let fifo = if number % 2 == 0 { &mut even } else { &mut odd };
                slab.push(fifo, Item(turn + number, Next::NONE));
            }
            assert_eq!(numbers(&slab, &even), [turn, turn + 2, turn + 4, turn + 6]);
            assert_eq!(slab.back(&odd).map(|item| item.0), Some(turn + 7));
            while slab.pop(&mut even).is_some() {}
            assert!(even.is_empty() && numbers(&slab, &odd).len() == 4);
            while slab.pop(&mut odd).is_some() {}
        }
        assert_eq!(room(&slab), before, "nothing was allocated");
    }

    #[test]
    fn growing_keeps_what_is_queued() {
        let (mut slab, mut fifo) = (Slab::new(), Fifo::EMPTY);
        for number in 0..3_000 {
            slab.reserve(number as usize + 1);
            slab.push(&mut fifo, Item(number, Next::NONE));
        }
        assert!(numbers(&slab, &fifo).into_iter().eq(0..3_000));
    }

    #[test]
    fn room_that_is_not_needed_is_given_back_but_for_what_holds_something() {
        let (mut slab, mut stays, mut goes) = (Slab::new(), Fifo::EMPTY, Fifo::EMPTY);
        slab.add_room(20_000);
        assert_eq!((slab.present, slab.runs.len()), (20 * RUN_SLOTS_MIN, 3), "two long ones and the rest");
        for number in 0..20_000 {
            // One item in the second run and one in the last stay for a while.
            let fifo = if [9_000, 19_999].contains(&number) { &mut stays } else { &mut goes };
            slab.push(fifo, Item(number, Next::NONE));
        }
        slab.add_room(10);
        while slab.pop(&mut goes).is_some() {}
        slab.remove_room(20_000);
        assert_eq!((slab.present, slab.used()), (12 * RUN_SLOTS_MIN, 2), "those that hold something");
        assert_eq!(numbers(&slab, &stays), [9_000, 19_999]);

        // Released room can be reserved again, in its old place or another.
        slab.add_room(15_000);
        assert_eq!((slab.present, slab.runs.len()), (15 * RUN_SLOTS_MIN, 3));
        for number in 0..14_000 {
            slab.push(&mut goes, Item(number, Next::NONE));
        }
        assert!(numbers(&slab, &goes).into_iter().eq(0..14_000));
        assert_eq!(numbers(&slab, &stays), [9_000, 19_999]);
        assert_eq!(slab.items().count(), 14_002);
        while slab.pop(&mut goes).is_some() {}
        while slab.pop(&mut stays).is_some() {}
        slab.remove_room(15_000);
        slab.remove_room(10);
        assert_eq!((slab.present, slab.used(), slab.runs.len()), (0, 0, 0));
    }

    #[test]
    fn room_that_was_used_is_freed_in_slices() {
        let (mut slab, mut fifo) = (Slab::<Item>::new(), Fifo::EMPTY);
        slab.add_room(20_000);
        for number in 0..20_000 {
            slab.push(&mut fifo, Item(number, Next::NONE));
        }
        while slab.pop(&mut fifo).is_some() {}
        slab.remove_room(20_000);
        assert_eq!((slab.present, slab.runs.len()), (0, 0), "it is nobody's room any more");
        let slots = |slab: &Slab<Item>| slab.leaving.iter().map(|run| run.slots.len()).sum::<usize>();
        assert_eq!(slots(&slab), 20_000);
        while slab.has_leftovers() {
            let before = slots(&slab);
            slab.free_some();
            assert!((1..=FREED_SLOTS).contains(&(before - slots(&slab))));
        }
        assert_eq!(slots(&slab), 0);
        // A run with few used slots is freed at once.
        slab.add_room(20_000);
        slab.remove_room(20_000);
        assert!(!slab.has_leftovers());
    }

    #[test]
    fn a_small_channel_that_comes_and_goes_allocates_nothing_and_no_great_one_is_kept_for_it() {
        let mut slab = Slab::<Item>::new();
        slab.add_room(10);
        for _ in 0..3 {
            slab.add_room(65_536);
            assert_eq!((slab.present, slab.runs.len()), (65 * RUN_SLOTS_MIN, 9));
            slab.remove_room(65_536);
            assert_eq!((slab.present, slab.runs.len()), (RUN_SLOTS_MIN, 1));
        }
        slab.add_room(RUN_SLOTS_MIN as u32);
        let runs = slab.runs.len();
        for _ in 0..3 {
            slab.remove_room(RUN_SLOTS_MIN as u32);
            assert_eq!(slab.runs.len(), runs, "a spare one stays");
            slab.add_room(RUN_SLOTS_MIN as u32);
        }
    }
    /// What the words and sums of a slab say, compared with its runs: a bit for each run with a free slot, a bit
    /// for each freed run, the slots, and those in use.
    fn is_consistent(slab: &Slab<Item>) -> bool {
        let bit = |bits: &[u64], place: usize| bits[place / 64] >> (place % 64) & 1 == 1;
        let runs = slab.runs.iter().enumerate();
        let bits = runs.into_iter().all(|(place, run)| {
            let (slots, used) = (run.slots.capacity(), run.slots.len() - run.free.len());
            bit(&slab.vacant, place) == (used < slots) && bit(&slab.absent, place) == (slots == 0)
        });
        let behind = (slab.runs.len()..slab.absent.len() * 64).all(|place| !bit(&slab.absent, place));
        let present: usize = slab.runs.iter().map(|run| run.slots.capacity()).sum();
        let used: usize = slab.runs.iter().map(|run| run.slots.len() - run.free.len()).sum();
        bits && behind && (present, used) == (slab.present, slab.used()) && present >= slab.room
    }

    /// Whether no run can be freed although it is unused and its slots are not needed: one of the shortest
    /// ones is kept to spare.
    fn keeps_no_more_than_needed(slab: &Slab<Item>) -> bool {
        let needed = slab.room.max(slab.used());
        slab.runs.last().is_none_or(Run::is_present)
            && slab.runs.iter().filter(|run| run.is_present() && run.is_unused()).all(|run| {
                let slots = run.slots.capacity();
                let kept = needed + if slots > 1_024 { 0 } else { 1_024 };
                slab.present < slots + kept
            })
    }

    /// Channels come and go and use what they reserve or less, in more runs than a word has bits.
    #[test]
    fn a_slab_of_many_runs_agrees_with_queues_of_their_own() {
        let mut random = crate::signalling::SplitMix64::new(9);
        let mut slab = Slab::new();
        let mut queues: Vec<(Fifo, alloc::collections::VecDeque<u32>, u32)> = Vec::new();
        let (mut number, mut runs_max) = (0, 0);
        for turn in 0..600_u64 {
            let grows = turn % 300 < 170;
            if grows || queues.is_empty() {
                let room = [1_u32, 700, 1_024, 1_025, 9_000][random.below(5) as usize];
                slab.add_room(room);
                queues.push((Fifo::EMPTY, [].into(), room));
            }
            for _ in 0..3 {
                let index = random.below(queues.len() as u64) as usize;
                let (fifo, held, room) = &mut queues[index];
                for _ in 0..random.below(900).min(u64::from(*room) - held.len() as u64) {
                    let place = slab.push(fifo, Item(number, Next::NONE));
                    held.push_back(number);
                    assert_eq!(slab.at(place).map(|item| item.0), Some(number));
                    number += 1;
                }
                assert_eq!(slab.back(fifo).map(|item| item.0), held.back().copied());
                for _ in 0..random.below(held.len() as u64 + 1) {
                    assert_eq!(slab.pop(fifo).map(|item| item.0), held.pop_front());
                }
                assert!(numbers(&slab, fifo).iter().eq(held.iter()));
                let place = slab.place(fifo, held.len() as u64 / 2).filter(|place| *place != Next::NONE);
                let middle = place.and_then(|place| slab.at(place)).map(|item| item.0);
                assert_eq!(middle, held.get(held.len() / 2).copied());
            }
            runs_max = runs_max.max(slab.runs.len());
            if !grows {
                let (mut fifo, _, room) = queues.swap_remove(random.below(queues.len() as u64) as usize);
                while slab.pop(&mut fifo).is_some() {}
                slab.remove_room(room);
                assert!(keeps_no_more_than_needed(&slab), "turn {turn}");
            }
            assert!(is_consistent(&slab), "turn {turn}");
        }
        assert!(runs_max > 64, "{runs_max}");
        for (mut fifo, _, room) in queues {
            while slab.pop(&mut fifo).is_some() {}
            slab.remove_room(room);
        }
        assert!(slab.used() == 0 && slab.present <= 1_024 && is_consistent(&slab));
    }

    /// A run of which at most as many slots were used as one call frees is freed at once.
    #[test]
    fn only_what_takes_more_than_one_call_is_left_for_later() {
        for (used, later) in [(FREED_SLOTS as u32, false), (FREED_SLOTS as u32 + 1, true)] {
            let (mut slab, mut fifo) = (Slab::<Item>::new(), Fifo::EMPTY);
            slab.add_room(5_000);
            (0..used).for_each(|number| {
                slab.push(&mut fifo, Item(number, Next::NONE));
            });
            while slab.pop(&mut fifo).is_some() {}
            slab.remove_room(5_000);
            assert_eq!((slab.present, slab.has_leftovers()), (0, later), "{used}");
        }
    }

    /// An item finds a place also where no room was made before.
    #[test]
    fn a_slab_makes_room_where_none_was_reserved() {
        let (mut slab, mut fifo) = (Slab::new(), Fifo::EMPTY);
        for number in 0..3 * RUN_SLOTS_MIN as u32 {
            slab.push(&mut fifo, Item(number, Next::NONE));
            assert_eq!(slab.used(), number as usize + 1);
        }
        assert!(numbers(&slab, &fifo).into_iter().eq(0..3 * RUN_SLOTS_MIN as u32));
    }
}
