//! A submitter, a lane and whoever frees the batch, under every interleaving that loom finds: no task is missed, the batch
//! is in the inbox once at most, and nobody touches it once it is free. Each ordering, left out, breaks one of these.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32};

use super::*;

/// Submits, one task each.
const SUBMITS: u32 = 2;

/// An ordering that is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Left {
    Nothing,
    /// That of the swaps of link and take.
    Swaps,
    /// That of letting go.
    LetGo,
    /// That of the looks of whoever frees it.
    Quiet,
}

pub(super) struct LoomFlag {
    flag: AtomicBool,
    left_out: Left,
}

impl LoomFlag {
    pub(super) fn new(left_out: Left) -> Self {
        Self { flag: AtomicBool::new(false), left_out }
    }

    fn order(&self, order: Ordering, left_out: Left) -> Ordering {
        if self.left_out == left_out { Ordering::Relaxed } else { order }
    }
}

impl Flag for LoomFlag {
    fn load(&self, order: Ordering) -> bool {
        self.flag.load(self.order(order, Left::Quiet))
    }

    fn store(&self, value: bool, order: Ordering) {
        self.flag.store(value, self.order(order, Left::LetGo));
    }

    fn swap(&self, value: bool, order: Ordering) -> bool {
        self.flag.swap(value, self.order(order, Left::Swaps))
    }
}

/// A batch, and the lane's inbox: how often the batch is in it.
struct Scene {
    tail: AtomicU32,
    inbox: AtomicU32,
    hold: Hold<LoomFlag>,
    /// What the lane has planned: nothing but the hold orders it.
    planned: AtomicU32,
    /// Whether somebody took the batch to be free.
    free: AtomicBool,
}

impl Scene {
    fn new(left_out: Left) -> Self {
        let flag = || LoomFlag::new(left_out);
        Self {
            tail: AtomicU32::new(0),
            inbox: AtomicU32::new(0),
            hold: Hold { linked: flag(), held: flag() },
            planned: AtomicU32::new(0),
            free: AtomicBool::new(false),
        }
    }

    fn submit(&self, tail: u32) {
        self.tail.store(tail, Ordering::Release);
        if self.hold.link() {
            // The inbox orders what is put into it; here it must not, so that the protocol is alone.
            let before = self.inbox.fetch_add(1, Ordering::Relaxed);
            assert_eq!(before, 0, "it is in the inbox already");
        }
    }

    /// The lane looks into its inbox, and plans what there is.
    fn look(&self) {
        if self.inbox.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.inbox.fetch_sub(1, Ordering::Relaxed);
        self.hold.take();
        self.planned.store(self.tail.load(Ordering::Relaxed), Ordering::Relaxed);
        assert!(!self.free.load(Ordering::Relaxed), "the lane has it still");
        self.hold.let_go();
    }
}

fn run(left_out: Left) {
    loom::model(move || {
        let scene = Arc::new(Scene::new(left_out));
        let lane = {
            let scene = Arc::clone(&scene);
            loom::thread::spawn(move || (0..=SUBMITS).for_each(|_| scene.look()))
        };
        (1..=SUBMITS).for_each(|tail| scene.submit(tail));
        // Whoever frees it looks at any moment.
        let was_let_go = scene.hold.is_quiet();
        if was_let_go {
            scene.free.store(true, Ordering::Relaxed);
            assert_eq!(scene.planned.load(Ordering::Relaxed), SUBMITS, "it was free before it was planned");
        }
        lane.join().unwrap();
        if !was_let_go {
            // The lane may not have seen it in time; it would look again.
            scene.look();
            assert!(scene.hold.is_quiet(), "nobody lets go of it");
            assert_eq!(scene.planned.load(Ordering::Relaxed), SUBMITS, "a task is missed");
        }
    });
}

#[test]
fn no_task_is_missed_and_what_is_free_is_touched_by_nobody() {
    run(Left::Nothing);
}

/// The negative controls.
#[test]
fn each_ordering_is_needed() {
    for left_out in [Left::Swaps, Left::LetGo, Left::Quiet] {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(left_out)));
        assert!(outcome.is_err(), "left out without harm: {left_out:?}");
    }
}
