//! Features, typed (NVM Express Base 2.1, 5.1.11 and 5.1.25).

use super::quirks::QuirkFlags;
use super::{Controller, ControllerError};
use crate::spec::command::{Arbitration, FeatureIdentifier, NumberOfQueues, Select, Sqe, TemperatureThreshold};
use crate::spec::events::AsynchronousEventConfiguration;
use crate::spec::identify::Ctratt;

/// The bit of the Volatile Write Cache feature (5.1.25.1.4).
const WCE: u32 = 1;

/// Who a host is, to all controllers of a subsystem (5.1.25.1.28). All zeroes is nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostIdentifier {
    /// 64 bits.
    Short([u8; 8]),
    /// 128 bits.
    Extended([u8; 16]),
}

impl Controller {
    /// Whether the volatile write cache is on. `false` where there is none.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn volatile_write_cache(&mut self) -> Result<bool, ControllerError> {
        if !self.identify.vwc.present() {
            return Ok(false);
        }
        Ok(self.feature(FeatureIdentifier::VOLATILE_WRITE_CACHE, 0)? & WCE != 0)
    }

    /// Switches the volatile write cache on or off.
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] where there is none to switch on, or another when the controller does not
    /// answer, or refuses.
    pub fn set_volatile_write_cache(&mut self, enabled: bool) -> Result<(), ControllerError> {
        if !self.identify.vwc.present() {
            return self.needs(!enabled, Some("a volatile write cache"), "VWC");
        }
        self.set_feature(FeatureIdentifier::VOLATILE_WRITE_CACHE, u32::from(enabled))
    }

    /// How many I/O queues of each kind the controller has granted.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn number_of_queues(&mut self) -> Result<NumberOfQueues, ControllerError> {
        Ok(NumberOfQueues::from_bits(self.feature(FeatureIdentifier::NUMBER_OF_QUEUES, 0)?))
    }

    /// Which events are reported.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn event_configuration(&mut self) -> Result<AsynchronousEventConfiguration, ControllerError> {
        let value = self.feature(FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION, 0)?;
        Ok(AsynchronousEventConfiguration::from_bits(value))
    }

    /// Says which events are to be reported, until the controller is enabled anew.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn set_event_configuration(&mut self, wanted: AsynchronousEventConfiguration) -> Result<(), ControllerError> {
        self.set_feature(FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION, wanted.bits())
    }

    /// The threshold in kelvins of the sensor and kind that `which` selects; its own threshold is not looked at.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn temperature_threshold(&mut self, which: TemperatureThreshold) -> Result<u16, ControllerError> {
        let value = self.feature(FeatureIdentifier::TEMPERATURE_THRESHOLD, which.with_tmpth(0).bits())?;
        Ok(TemperatureThreshold::from_bits(value).tmpth())
    }

    /// Sets a temperature threshold. A temperature that is past it sets a critical warning, and is reported.
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] on a controller whose warning would stay, or another when the controller does
    /// not answer, or refuses.
    pub fn set_temperature_threshold(&mut self, threshold: TemperatureThreshold) -> Result<(), ControllerError> {
        let has = !self.quirks.has(QuirkFlags::NO_TEMPERATURE_THRESHOLD);
        self.needs(has, Some("a temperature threshold that can be changed"), "a quirk")?;
        self.set_feature(FeatureIdentifier::TEMPERATURE_THRESHOLD, threshold.bits())
    }

    /// How the controller takes commands from its queues.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn arbitration(&mut self) -> Result<Arbitration, ControllerError> {
        Ok(Arbitration::from_bits(self.feature(FeatureIdentifier::ARBITRATION, 0)?))
    }

    /// Says how the controller is to take commands from its queues.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn set_arbitration(&mut self, arbitration: Arbitration) -> Result<(), ControllerError> {
        self.set_feature(FeatureIdentifier::ARBITRATION, arbitration.bits())
    }

    /// Who this host is to the controller: of 128 bits where it has such identifiers (CTRATT), else of 64.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn host_identifier(&mut self) -> Result<HostIdentifier, ControllerError> {
        let get = Sqe::get_features(FeatureIdentifier::HOST_IDENTIFIER, Select::CURRENT, 0);
        Ok(if self.identify.ctratt.contains(Ctratt::HOST_IDENTIFIER_128_BIT) {
            HostIdentifier::Extended(self.admin.fetch(get.with_exhid(true))?)
        } else {
            HostIdentifier::Short(self.admin.fetch(get)?)
        })
    }

    /// Says who this host is. A controller does not let it be changed while it is enabled, once it has been set.
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] for 128 bits where the controller has 64, [`ControllerError::Argument`] for all
    /// zeroes, or another when the controller does not answer, or refuses.
    pub fn set_host_identifier(&mut self, host: HostIdentifier) -> Result<(), ControllerError> {
        let (bytes, extended) = match &host {
            HostIdentifier::Short(bytes) => (&bytes[..], false),
            HostIdentifier::Extended(bytes) => (&bytes[..], true),
        };
        let has = !extended || self.identify.ctratt.contains(Ctratt::HOST_IDENTIFIER_128_BIT);
        self.needs(has, Some("host identifiers of 128 bits"), "CTRATT")?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(ControllerError::Argument { argument: "host", value: 0, right: "all zeroes is nobody" });
        }
        let memory = self.admin.sending(bytes.len())?;
        memory.view().write(0, bytes);
        let set = Sqe::set_features(FeatureIdentifier::HOST_IDENTIFIER, 0, 0).with_exhid(extended);
        self.admin.send(set, &memory, bytes.len() as u64)?;
        memory.release();
        Ok(())
    }

    /// The current value of a feature that is in dword 0 of the completion.
    fn feature(&mut self, fid: FeatureIdentifier, cdw11: u32) -> Result<u32, ControllerError> {
        let mut get = Sqe::get_features(fid, Select::CURRENT, 0);
        get.cdw11 = cdw11;
        Ok(self.admin.execute(get)?.dw0)
    }

    fn set_feature(&mut self, fid: FeatureIdentifier, value: u32) -> Result<(), ControllerError> {
        self.admin.execute(Sqe::set_features(fid, 0, value)).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
