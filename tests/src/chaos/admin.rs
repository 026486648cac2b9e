//! Typed admin commands, whose answers are compared with what the drive is.

use tentpeg_driver::controller::{ControllerError, Namespace};
use tentpeg_driver::model::faults::Kind;

use super::drive::{Drive, Event};

impl Drive {
    /// Lists the namespaces.
    pub(super) fn list_namespaces(&mut self) -> Result<(), String> {
        let Some(controller) = &mut self.controller else { return self.attend() };
        let answer = controller.namespaces();
        let (blocks, lba_size) = (self.shape.blocks(), self.shape.lba_size());
        let right = |namespaces: Vec<Namespace>| {
            let [namespace] = &namespaces[..] else { return false };
            let limits = namespace.limits.as_ref();
            namespace.nsid == 1 && limits.is_ok_and(|limits| limits.nsze() == blocks && limits.lba_size() == lba_size)
        };
        self.looked_up("namespaces", answer.map(right))
    }

    /// Reads a log page, or what the controller has reported by itself.
    pub(super) fn read_log(&mut self) -> Result<(), String> {
        let which = self.dice.below(4);
        let Some(controller) = &mut self.controller else { return self.attend() };
        let answer = match which {
            0 => controller.error_log(4).map(drop),
            1 => controller.poll_events(drop).map(drop),
            _ => controller.smart_log().map(drop),
        };
        self.looked_up("log", answer.map(|()| true))
    }

    /// A call has answered, rightly or not.
    fn looked_up(&mut self, call: &'static str, answer: Result<bool, ControllerError>) -> Result<(), String> {
        self.counters.admin_calls += 1;
        self.note(Event::Admin(call, answer.is_ok()));
        match answer {
            Ok(true) => Ok(()),
            Ok(false) => {
                let faults = self.faults.counters();
                let injected = [Kind::Garbage, Kind::Answer].into_iter().map(|kind| faults.get(kind)).sum::<u64>();
                if injected == 0 { Err(format!("{call}: a wrong answer that nobody injected")) } else { Ok(()) }
            }
            Err(_) => {
                self.counters.admin_failed += 1;
                // The owner looks after its controller when a command fails.
                self.attend()
            }
        }
    }
}
