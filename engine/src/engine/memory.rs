//! How memory stops being what requests can name.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::device::lock;
use crate::lane::{Lane, Withdrawal};
use crate::memory::{Memory, MemoryInUse, Registered};
use crate::progress;

/// Between two looks at tasks whose ends nobody announces one by one.
const LOOK: Duration = Duration::from_millis(1);

impl Engine {
    /// Takes memory out of what requests can name, gives up the tasks that name it and of which no command was issued, and
    /// returns when no task names it any more: then no hardware touches it, and no handle of the engine holds it. Memory
    /// that is not registered here is none of its business.
    ///
    /// A task that spans devices, or goes through staging memory, is not given up but waited for. How long the wait takes
    /// is bounded by the deadlines by which the engine recovers a controller that does not end a command. For an engine
    /// whose lanes have threads; not to be called by a notifier.
    pub fn unregister_memory(&self, memory: Memory) {
        // Only the other form refuses.
        let _ = self.withdraw(memory, None, false);
    }

    /// As [`unregister_memory`](Self::unregister_memory), of an engine whose lane, this one, the caller drives: turns
    /// it meanwhile.
    pub fn unregister_memory_with(&self, memory: Memory, lane: &mut Lane) {
        let _ = self.withdraw(memory, Some(lane), false);
    }

    /// As [`unregister_memory`](Self::unregister_memory) where no task names the memory that has not ended, and else not
    /// at all. Requests that name it and are submitted at the same time may be found INVALID in either case.
    ///
    /// # Errors
    /// [`MemoryInUse`]; it stays registered then.
    pub fn try_unregister_memory(&self, memory: Memory) -> Result<(), MemoryInUse> {
        self.withdraw(memory, None, true)
    }

    /// As [`try_unregister_memory`](Self::try_unregister_memory), of an engine whose lane the caller drives.
    ///
    /// # Errors
    /// [`MemoryInUse`]; it stays registered then.
    pub fn try_unregister_memory_with(&self, memory: Memory, lane: &mut Lane) -> Result<(), MemoryInUse> {
        self.withdraw(memory, Some(lane), true)
    }

    fn withdraw(&self, memory: Memory, mut lane: Option<&mut Lane>, refuses: bool) -> Result<(), MemoryInUse> {
        // Of two that unregister the same memory the second returns when the first does.
        let _unregistering = lock(&self.unregistering);
        if refuses {
            let tasks = self.ask(&memory, false, &mut lane).tasks();
            if tasks != 0 {
                return Err(MemoryInUse { memory, tasks });
            }
        }
        if !self.change_registered(&mut lane, |registered| registered.closing(&memory)) {
            return Ok(());
        }
        // No submit is in progress any more that could name it.
        let answers = self.ask(&memory, !refuses, &mut lane);
        let tasks = if refuses { answers.tasks() } else { 0 };
        if tasks != 0 {
            self.change_registered(&mut lane, |registered| registered.without(&memory).with(memory.clone()));
            return Err(MemoryInUse { memory, tasks });
        }
        self.wait_until(&mut lane, || answers.is_over());
        self.change_registered(&mut lane, |registered| Some(registered.without(&memory)));
        if let Some(region) = Arc::into_inner(memory.region) {
            // The last handle: its IOVAs can be used again at once, as no command names one of them.
            region.release();
        }
        Ok(())
    }

    /// Asks each port for the tasks that name the memory, and waits for the answers.
    fn ask(&self, memory: &Memory, gives_up: bool, lane: &mut Option<&mut Lane>) -> Arc<Withdrawal> {
        let question = Withdrawal::new(memory, gives_up, self.devices.len());
        for opened in &self.devices {
            opened.inquiries.ask(&question);
            // A port that is no more has closed its inquiries, so that whoever asks has his answer.
            let _ = opened.bell.ring();
        }
        self.wait_until(lane, || question.is_answered());
        question
    }

    /// Changes the set of registered memory, and waits until nobody looks at the former one. Whether it was changed.
    fn change_registered(
        &self,
        lane: &mut Option<&mut Lane>,
        change: impl FnOnce(&Registered) -> Option<Registered>,
    ) -> bool {
        let registering = lock(&self.registering);
        let Some(changed) = change(&self.registered.load()) else { return false };
        let mut former = Some(self.registered.swap(Arc::new(changed)));
        drop(registering);
        // Whoever has it, a submit or a copy from staging memory, is counted since the swap.
        self.wait_until(lane, || {
            former = former.take().and_then(|former| Arc::try_unwrap(former).err());
            former.is_none()
        });
        true
    }

    /// Waits for what lanes bring about, and turns the one that is the caller's.
    fn wait_until(&self, lane: &mut Option<&mut Lane>, mut done: impl FnMut() -> bool) {
        loop {
            let seen = self.progress.now();
            if done() {
                return;
            }
            match lane {
                Some(lane) => {
                    lane.turn();
                }
                None => {
                    self.progress.wait(seen, progress::deadline(LOOK));
                }
            }
        }
    }
}
