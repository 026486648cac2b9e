//! A submit, a lane and whoever unregisters the memory that it names, under every interleaving that loom finds: when the
//! memory is taken for nobody's, no lane has a task any more that names it, and none will.
//!
//! The hold is the real one. In place of the set of registered memory, which is swapped whole, stands a flag, and a count of
//! those who look at it; in place of the inbox a number; the question is asked and answered by a flag each. Another submitter
//! may append a task to the same batch, one that names other memory. Each step that is left out, and each ordering, breaks the
//! promise.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::atomic::{AtomicBool, AtomicU32, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::loom_tests::{Left, LoomFlag};
use super::*;

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    /// The memory is taken out of what can be named only behind the question.
    Closing,
    /// Nobody waits for the submits that are in progress.
    WaitForSubmits,
    /// The end of a submit orders nothing.
    EndOfSubmit,
    /// The lane answers for what it has, and not for what is in its inbox.
    Inbox,
    /// The answer orders nothing.
    Answer,
    /// Nobody waits for the task.
    WaitForTask,
    /// Who has linked the batch puts it into the inbox when he has let go of the lock: others append behind it and are gone.
    HandingUnderLock,
}

/// Tasks of the batch: the one that names the memory, and the other submitter's.
const NAMES: u32 = 1;
const OTHER: u32 = 2;

const PENDING: u32 = 1;
const ENDED: u32 = 2;

/// Who submits beside the thread that unregisters.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    /// The one whose task names the memory.
    Names,
    /// The other one; the task that names the memory was submitted before, by the thread that unregisters.
    Other,
}

struct Scene {
    without: Without,
    beside: Beside,
    /// Whether requests can name the memory, and how many submits look at that.
    named: AtomicBool,
    submits: AtomicU32,
    /// Held while tasks are appended.
    appended: Mutex<()>,
    /// Tasks that are published, and the state of the one that names the memory.
    tail: AtomicU32,
    state: AtomicU32,
    inbox: AtomicU32,
    hold: Hold<LoomFlag>,
    asked: AtomicBool,
    /// 0: not yet; 1: there is no such task; 2: there is one.
    answer: AtomicU32,
    /// The memory: 1 is what the task brings, 9 what its owner puts there afterwards.
    memory: AtomicU32,
}

impl Scene {
    fn new(without: Without, beside: Beside) -> Self {
        let flag = || LoomFlag::new(Left::Nothing);
        Self {
            without,
            beside,
            named: AtomicBool::new(true),
            submits: AtomicU32::new(0),
            appended: Mutex::new(()),
            tail: AtomicU32::new(0),
            state: AtomicU32::new(0),
            inbox: AtomicU32::new(0),
            hold: Hold { linked: flag(), held: flag() },
            asked: AtomicBool::new(false),
            answer: AtomicU32::new(0),
            memory: AtomicU32::new(0),
        }
    }

    fn order(&self, order: Ordering, without: Without) -> Ordering {
        if self.without == without { Ordering::Relaxed } else { order }
    }

    fn submit(&self) {
        self.submits.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.named.load(Ordering::Relaxed) {
            self.state.store(PENDING, Ordering::Relaxed);
            self.append(NAMES);
        }
        self.submits.fetch_sub(1, self.order(Ordering::Release, Without::EndOfSubmit));
    }

    /// Appends a task. For the other submitter nobody waits: it has looked at what can be named after the memory was taken out.
    fn append(&self, task: u32) {
        // One alone has nobody to wait for at it.
        let mut appended = (self.beside == Beside::Other).then(|| self.appended.lock().unwrap());
        self.tail.store(self.tail.load(Ordering::Relaxed) | task, Ordering::Release);
        let linked = self.hold.link();
        if self.without == Without::HandingUnderLock {
            appended = None;
        }
        if linked {
            self.inbox.store(1, Ordering::Relaxed);
        }
        drop(appended);
    }

    /// The lane looks once: what it was asked, then its inbox, then its task. What it has is its own.
    fn look(&self, has: &mut bool) {
        if self.asked.load(Ordering::Acquire) && self.answer.load(Ordering::Relaxed) == 0 {
            if self.without != Without::Inbox {
                self.take_in(has);
            }
            self.answer.store(1 + u32::from(*has), self.order(Ordering::Release, Without::Answer));
        }
        self.take_in(has);
        if *has {
            self.memory.store(1, Ordering::Relaxed);
            self.state.store(ENDED, Ordering::Release);
            *has = false;
            self.hold.let_go();
        }
    }

    fn take_in(&self, has: &mut bool) {
        if self.inbox.load(Ordering::Relaxed) != 0 {
            self.inbox.store(0, Ordering::Relaxed);
            self.hold.take();
            let named = self.tail.load(Ordering::Relaxed) & NAMES != 0;
            *has |= named && self.state.load(Ordering::Relaxed) == PENDING;
        }
    }

    /// Unregisters the memory, as far as that comes at this moment: whoever waits looks again, and here gives up. Whether it
    /// came to its end.
    fn unregister(&self) -> bool {
        if self.without != Without::Closing && !self.close() {
            return false;
        }
        self.asked.store(true, Ordering::Release);
        // So that the lane has a chance.
        thread::yield_now();
        let answer = self.answer.load(Ordering::Acquire);
        if answer == 0 || self.without == Without::Closing && !self.close() {
            return false;
        }
        if answer == 2 {
            thread::yield_now();
        }
        if answer == 2 && self.without != Without::WaitForTask && self.state.load(Ordering::Acquire) != ENDED {
            return false;
        }
        if self.state.load(Ordering::Relaxed) == ENDED {
            assert_eq!(self.memory.load(Ordering::Relaxed), 1, "what the task brought is not seen");
        }
        self.memory.store(9, Ordering::Relaxed);
        true
    }

    /// Takes the memory out of what can be named. Whether no submit is in progress.
    fn close(&self) -> bool {
        self.named.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.without == Without::WaitForSubmits || self.submits.load(Ordering::Acquire) == 0
    }
}

fn run(without: Without, beside: Beside) {
    let mut builder = loom::model::Builder::new();
    // With a lock there are too many interleavings; what goes wrong without it needs one preemption.
    builder.preemption_bound = (beside == Beside::Other).then_some(3);
    builder.check(move || {
        let scene = Arc::new(Scene::new(without, beside));
        let submitter = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || match beside {
                Beside::Names => scene.submit(),
                Beside::Other => scene.append(OTHER),
            })
        };
        // In the other scene the second look would see nothing that the one at the end does not.
        let looks = if beside == Beside::Names { 2 } else { 1 };
        let lane = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || (0..looks).for_each(|_| scene.look(&mut false)))
        };
        if let Beside::Other = beside {
            scene.submit();
        }
        let unregistered = scene.unregister();
        submitter.join().unwrap();
        lane.join().unwrap();
        // The lane may not have seen it in time; it would look again.
        scene.look(&mut false);
        let expected = if unregistered { 9 } else { scene.memory.load(Ordering::Relaxed) };
        assert_eq!(scene.memory.load(Ordering::Relaxed), expected, "it was written when it was nobody's");
    });
}

#[test]
fn memory_that_is_unregistered_is_named_by_no_task() {
    run(Without::Nothing, Beside::Names);
    run(Without::Nothing, Beside::Other);
}

/// The negative controls.
#[test]
fn each_step_and_ordering_of_unregistering_is_needed() {
    for (without, beside) in [
        (Without::Closing, Beside::Names),
        (Without::WaitForSubmits, Beside::Names),
        (Without::EndOfSubmit, Beside::Names),
        (Without::Inbox, Beside::Names),
        (Without::Answer, Beside::Names),
        (Without::WaitForTask, Beside::Names),
        (Without::HandingUnderLock, Beside::Other),
    ] {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(without, beside)));
        assert!(outcome.is_err(), "left out without harm: {without:?}");
    }
}
