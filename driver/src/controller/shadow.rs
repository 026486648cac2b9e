//! Doorbells in memory, where the controller has them and the owner wants them (NVM Express Base 2.1, 5.2.5).

use super::{Controller, ControllerError};
use crate::queue::DoorbellBuffers;
use crate::spec::command::Sqe;
use crate::spec::identify::Oacs;

impl Controller {
    /// Whether new queue pairs have their doorbells in memory (see
    /// [`ControllerConfig::shadow_doorbells`](super::ControllerConfig::shadow_doorbells)).
    pub fn has_shadow_doorbells(&self) -> bool {
        self.doorbell_buffers.is_some()
    }

    /// Makes the buffers known to a controller that has just been enabled. A controller that refuses them is driven
    /// without.
    pub(super) fn cast_shadows(&mut self) -> Result<(), ControllerError> {
        let buffers = self.doorbell_buffers.take();
        if !self.config.shadow_doorbells || !self.identify.oacs.contains(Oacs::DOORBELL_BUFFER_CONFIG) {
            return Ok(());
        }
        let buffers = match buffers {
            // What was told in its former life means nothing to it now.
            Some(buffers) => {
                buffers.clear();
                buffers
            }
            None => DoorbellBuffers::new(&*self.function, self.cap, self.limits.page_size)
                .map_err(|error| ControllerError::AdminMemory(error.to_string()))?,
        };
        let (shadow_doorbells, event_idx) = (buffers.shadow_doorbells().get(), buffers.event_idx().get());
        match self.admin.execute(Sqe::doorbell_buffer_config(shadow_doorbells, event_idx)) {
            Ok(_) => self.doorbell_buffers = Some(buffers),
            Err(ControllerError::Command { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
