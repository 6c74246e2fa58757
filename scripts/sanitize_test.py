"""The judge of the thread sanitizer's reports: what it excuses, and what it must not."""

import unittest

from sanitize import accesses, is_excused

STD = "std::sync::mpmc::list::Channel<punctual_link::pool::Frame>>::recv link.cgu.0 (link-96eb+0x1d4b20)"
THREAD = "std::sys::thread_local::guard::key::enable::run std.cgu.0 (ipc-be01+0x241724)"
OURS = "punctual_ipc::ring::free_list::FreeList>::take ipc.cgu.07 (ipc-be01+0x17ddf9)"


def report(*accesses, kind="data race"):
    """A report of so many accesses, each a list of functions."""
    blocks = [f" {kind} (pid=24993)"]
    for number, frames in enumerate(accesses):
        words = ["Write", "Previous atomic read"][number % 2]
        blocks.append(f"  {words} of size 8 at 0x7244 by thread T{number}:")
        blocks += [f"    #{at} {frame}" if frame[:1] != "[" else f"    {frame}" for at, frame in enumerate(frames)]
        blocks.append("")
    blocks += ["  Location is heap block of size 96 at 0x7218 allocated by thread T1:", f"    #0 <{OURS}", ""]
    return "\n".join(blocks)


class Judge(unittest.TestCase):
    def test_the_standard_library_alone_is_excused(self):
        race = report(["memcpy <null> (link+0xbe42e)", f"<{STD}"], ["free <null> (ipc+0xc9)", THREAD])
        self.assertEqual(accesses(race), [f"<{STD}", THREAD])
        self.assertTrue(is_excused(race))

    def test_ours_counts_on_either_side_and_through_helpers(self):
        for first, second in [(OURS, STD), (STD, OURS), (OURS, OURS)]:
            race = report(["<core::ptr::NonNull<u8>>::write x", f"<{first}"], [f"<{second}"])
            self.assertFalse(is_excused(race), (first, second))

    def test_what_runs_our_closures_is_not_excused(self):
        runs = "std::sys::backtrace::__rust_begin_short_backtrace::<punctual_link::pool::tests::a::{closure#0}, u64> x"
        self.assertFalse(is_excused(report([runs], [THREAD])))
        self.assertTrue(is_excused(report([runs.replace("punctual_link", "test")], [THREAD])))

    def test_what_is_not_resolved_counts(self):
        unresolved = [["<null> (link+0x1)"], ["0x7f3a (libc.so.6+0x27249)"], ["memcpy <null> (link+0xbe42e)"], []]
        for frames in [*unresolved, ["[failed to restore the stack]", THREAD]]:
            self.assertFalse(is_excused(report(frames, [THREAD])), frames)
            self.assertFalse(is_excused(report([THREAD], frames)), frames)

    def test_one_access_and_other_reports_count(self):
        self.assertFalse(is_excused(report([THREAD])))
        self.assertFalse(is_excused(report([THREAD], [THREAD], [THREAD])))
        self.assertFalse(is_excused(report([THREAD], [THREAD], kind="thread leak")))


if __name__ == "__main__":
    unittest.main()
