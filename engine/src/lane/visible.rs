//! Completions of a port whose device may have written straight into memory of a GPU that has to be flushed.

use super::port::Port;
use super::{COMPLETIONS_A_TURN, CommandTasks};
use crate::OpCode;
use crate::task::{Operation, Outcome, Task, Work};

impl Port {
    /// As [`complete`](Self::complete): first the GPU sees what the commands of this turn have brought, then their tasks are
    /// told of.
    #[cold]
    pub(super) fn complete_visibly(&mut self) -> usize {
        let mut completions = self.pair.completions(COMPLETIONS_A_TURN);
        for completion in completions.by_ref() {
            self.special.push((completion.token, completion.status));
        }
        let ended = completions.ended();
        drop(completions);
        if !self.flush_for_special() {
            let all = std::mem::take(&mut self.special);
            let (unseen, others) =
                all.into_iter().partition::<Vec<_>, _>(|(token, status)| status.is_success() && self.brings(*token));
            self.special = others;
            for (token, status) in unseen {
                self.time_special(token, status);
                // What it brought may come to be seen at any time.
                self.end_special(token, Outcome::LOST);
            }
        }
        if !self.special.is_empty() {
            self.complete_special();
        }
        ended
    }

    /// Flushes, if any of the commands in `special` has brought what needs it. `false`: the GPU does not.
    fn flush_for_special(&self) -> bool {
        let Some(visibility) = &self.visibility else { return true };
        // Also those that have failed: who is told so has the memory back, and what they brought may not come behind that.
        if !self.special.iter().any(|(token, _)| self.brings(*token)) {
            return true;
        }
        self.counters.count_gpu_flush();
        let flushed = visibility.flush();
        if let Err(error) = &flushed {
            tracing::error!(device = self.watch.name(), %error, "reads fail: the GPU may not see what they brought");
        }
        flushed.is_ok()
    }

    /// Flushes whatever was brought by commands that have no completion: nothing of them comes behind what is told of them.
    pub(super) fn flush_for_interrupted(&self) {
        if let Some(visibility) = self.visibility.as_ref().filter(|visibility| visibility.is_wanted()) {
            self.counters.count_gpu_flush();
            // They are not told that anything is there.
            let _ = visibility.flush();
        }
    }

    /// Whether a command may have brought something that has to be flushed.
    fn brings(&self, token: CommandTasks) -> bool {
        let Some(visibility) = &self.visibility else { return false };
        let Some(Some(entry)) = self.active.get(token.place() as usize) else { return false };
        token.indices().any(|index| match entry.batch.task(index).map(Task::work) {
            Some(Work::Transfer(transfer)) => {
                transfer.head.opcode() == OpCode::Read && visibility.holds(transfer.iova.get())
            }
            Some(Work::Spread(spread)) => spread.head.operation() == Operation::Read && visibility.holds(spread.memory),
            Some(Work::Nothing) | None => false,
        })
    }
}
