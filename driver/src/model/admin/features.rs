//! Set Features and Get Features (NVM Express Base 2.1, 5.1.25 and 5.1.11).

use std::collections::BTreeMap;
use std::time::Instant;

use super::super::config::ModelConfig;
use super::super::namespaces::Namespaces;
use super::super::queues::Queues;
use super::super::transfer::permanent;
use super::identify::WCTEMP;
use super::{Admin, Answer, Surroundings};
use crate::spec::ZeroesBased;
use crate::spec::command::{
    FeatureCapabilities, FeatureIdentifier, NSID_ALL, NumberOfQueues, Select, Sqe, TemperatureThreshold, ThresholdType,
};
use crate::spec::events::AsynchronousEventConfiguration;
use crate::spec::log::ReservationNotificationType;
use crate::spec::status::{Status, StatusCode};

/// The Volatile Write Cache Enable bit of its feature (Base 2.1, 5.1.25.1.4).
const WCE: u32 = 1;
/// Coalescing Disable of Interrupt Vector Configuration (PCIe Transport 1.1, 3.8.1.2).
const CD: u32 = 1 << 16;
/// Time Limited Error Recovery, the part of Error Recovery without DULBE, which no namespace here has.
const TLER: u32 = 0xFFFF;
/// Threshold Temperature Select: every temperature.
const ALL_TEMPERATURES: u8 = 0xF;
/// The events that can be asked for: critical warnings, namespace attributes, firmware activation.
const EVENTS: u32 = 0x33F;
/// No-Deallocate Response Mode of Sanitize Config (Base 2.1, 5.1.25.1.16).
const NODRM: u32 = 1;
/// Persist Through Power Loss of Reservation Persistence (Base 2.1, 5.1.25.1.30).
const PTPL: u32 = 1;
/// The notifications that can be masked (Base 2.1, 5.1.25.1.29).
const RESERVATION_MASKS: u32 = 0b1110;
/// Bytes of the Timestamp data structure, and the bits of a timestamp in it.
const TIMESTAMP_BYTES: u64 = 8;
const TIMESTAMP_BITS: u64 = 0xFFFF_FFFF_FFFF;

/// A feature that is a number of the controller's, with no further meaning to the model.
struct Plain {
    fid: FeatureIdentifier,
    /// Bits that are not reserved.
    mask: u32,
    saveable: bool,
    current: u32,
    saved: u32,
}

impl Plain {
    fn new(fid: FeatureIdentifier, mask: u32, saveable: bool) -> Self {
        Self { fid, mask, saveable, current: 0, saved: 0 }
    }
}

/// The controller's features; those of namespaces are with them.
pub(super) struct Features {
    plain: [Plain; 4],
    /// I/O queues that a driver may create.
    granted: NumberOfQueues,
    /// I/O queue pairs that the controller has.
    queues: u16,
    has_cache: bool,
    cached: bool,
    over: u16,
    under: u16,
    /// Interrupt vectors whose coalescing is disabled.
    coalescing_disabled: Vec<bool>,
    /// Milliseconds, when they were set, and whether by the host.
    timestamp: (u64, Instant, bool),
    host_identifier: [u8; 16],
    /// Whether it was set with 128 bits.
    host_extended: bool,
    has_reservations: bool,
    /// Reservation Notification Masks by namespace; those that are 0 are not here.
    reservation_masks: BTreeMap<u32, u32>,
}

/// `queues` of each kind, at least one.
pub(super) fn all_queues(queues: u16) -> NumberOfQueues {
    let count = ZeroesBased::<u16>::from_raw(queues.saturating_sub(1));
    NumberOfQueues::new(count, count)
}

impl Features {
    pub(super) fn new(config: &ModelConfig) -> Self {
        Self {
            plain: [
                Plain::new(FeatureIdentifier::ARBITRATION, 0xFFFF_FF07, true),
                Plain::new(FeatureIdentifier::INTERRUPT_COALESCING, 0xFFFF, true),
                Plain::new(FeatureIdentifier::WRITE_ATOMICITY_NORMAL, 1, false),
                Plain::new(FeatureIdentifier::SANITIZE_CONFIG, NODRM, false),
            ],
            granted: all_queues(config.queues),
            queues: config.queues,
            has_cache: config.volatile_write_cache,
            cached: config.volatile_write_cache,
            over: WCTEMP,
            under: 0,
            coalescing_disabled: vec![false; usize::from(config.queues) + 1],
            timestamp: (0, Instant::now(), false),
            host_identifier: [0; 16],
            host_extended: false,
            has_reservations: config.io_commands.reservations,
            reservation_masks: BTreeMap::new(),
        }
    }

    /// A reset: saved values where there are such, else those at first. The time goes on.
    pub(super) fn reset(&mut self, namespaces: &mut Namespaces) {
        for feature in &mut self.plain {
            feature.current = feature.saved;
        }
        self.granted = all_queues(self.queues);
        self.cached = self.has_cache;
        (self.over, self.under) = (WCTEMP, 0);
        self.coalescing_disabled.fill(false);
        (self.host_identifier, self.host_extended) = ([0; 16], false);
        self.reservation_masks.clear();
        for entry in namespaces.iter_mut() {
            entry.namespace.cached = self.has_cache;
            entry.error_recovery = 0;
        }
    }

    pub(super) fn granted(&self) -> NumberOfQueues {
        self.granted
    }

    pub(super) fn host_identifier(&self) -> [u8; 16] {
        self.host_identifier
    }

    /// Whether the Host Identifier has 128 bits; `None` where there is none.
    pub(super) fn host_extended(&self) -> Option<bool> {
        (self.host_identifier != [0; 16]).then_some(self.host_extended)
    }

    /// Whether the host does not want to know of that.
    pub(super) fn masks_reservation(&self, nsid: u32, kind: ReservationNotificationType) -> bool {
        self.reservation_masks.get(&nsid).is_some_and(|mask| mask >> kind.raw() & 1 == 1)
    }

    /// Whether writes may stay in a volatile cache.
    pub(super) fn cached(&self) -> bool {
        self.cached
    }

    /// Whether a Sanitize that asks not to deallocate is carried out all the same (Base 2.1, 5.1.25.1.16).
    pub(super) fn no_deallocate_is_warning(&self) -> bool {
        self.plain.iter().any(|feature| feature.fid == FeatureIdentifier::SANITIZE_CONFIG && feature.current == NODRM)
    }

    /// Whether a temperature in kelvins is at one of the thresholds or beyond.
    pub(super) fn too_hot_or_cold(&self, kelvins: u16) -> bool {
        kelvins >= self.over || kelvins <= self.under
    }

    /// What can be done with a feature; `None` for one that the controller does not have.
    pub(super) fn capabilities(&self, fid: FeatureIdentifier) -> Option<FeatureCapabilities> {
        let changeable = FeatureCapabilities::CHANGEABLE;
        match fid {
            FeatureIdentifier::VOLATILE_WRITE_CACHE => self.has_cache.then_some(changeable),
            // There is one power state.
            FeatureIdentifier::POWER_MANAGEMENT => Some(FeatureCapabilities::empty()),
            FeatureIdentifier::ERROR_RECOVERY => Some(changeable | FeatureCapabilities::NAMESPACE_SPECIFIC),
            FeatureIdentifier::TEMPERATURE_THRESHOLD
            | FeatureIdentifier::NUMBER_OF_QUEUES
            | FeatureIdentifier::INTERRUPT_VECTOR_CONFIGURATION
            | FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION
            | FeatureIdentifier::TIMESTAMP
            | FeatureIdentifier::HOST_IDENTIFIER => Some(changeable),
            FeatureIdentifier::RESERVATION_NOTIFICATION_MASK | FeatureIdentifier::RESERVATION_PERSISTENCE => {
                self.has_reservations.then_some(changeable | FeatureCapabilities::NAMESPACE_SPECIFIC)
            }
            _ => {
                let feature = self.plain.iter().find(|feature| feature.fid == fid)?;
                let saveable = if feature.saveable { FeatureCapabilities::SAVEABLE } else { Default::default() };
                Some(changeable | saveable)
            }
        }
    }

    fn set_number_of_queues(&mut self, sqe: &Sqe, queues: &Queues) -> Result<Answer, Status> {
        let (nsq, ncq) = (sqe.number_of_queues().nsq(), sqe.number_of_queues().ncq());
        if nsq.raw() == u16::MAX || ncq.raw() == u16::MAX {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        if queues.created {
            return Err(permanent(StatusCode::COMMAND_SEQUENCE_ERROR));
        }
        let all = all_queues(self.queues);
        self.granted = NumberOfQueues::new(nsq.min(all.nsq()), ncq.min(all.ncq()));
        Ok(Answer::Done(self.granted.bits()))
    }

    fn set_cached(&mut self, cached: bool, namespaces: &mut Namespaces) -> Result<(), Status> {
        if !cached {
            // What the cache holds becomes durable before it is off.
            namespaces.flush().map_err(|_| StatusCode::WRITE_FAULT.status())?;
        }
        self.cached = cached;
        for entry in namespaces.iter_mut() {
            entry.namespace.cached = cached;
        }
        Ok(())
    }

    /// The threshold that a dword 11 names. There are no sensors besides the composite temperature.
    fn threshold(&mut self, word: TemperatureThreshold) -> Result<&mut u16, Status> {
        match word.thsel() {
            ThresholdType::OVER => Ok(&mut self.over),
            ThresholdType::UNDER => Ok(&mut self.under),
            _ => Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND)),
        }
    }

    fn vector(&mut self, cdw11: u32) -> Result<&mut bool, Status> {
        let invalid = permanent(StatusCode::INVALID_FIELD_IN_COMMAND);
        self.coalescing_disabled.get_mut(cdw11 as usize & 0xFFFF).ok_or(invalid)
    }

    /// The Timestamp data structure (Base 2.1, 5.1.25.1.7): the time now, and whether a host set it.
    fn timestamp_now(&self) -> u64 {
        let (set, at, by_host) = self.timestamp;
        let now = set.wrapping_add(at.elapsed().as_millis() as u64) & TIMESTAMP_BITS;
        now | u64::from(by_host) << 49
    }
}

/// Bytes of a Host Identifier, by EXHID.
fn host_identifier_bytes(sqe: &Sqe) -> u64 {
    if sqe.exhid() { 16 } else { 8 }
}

impl Admin {
    pub(super) fn set_features(&mut self, around: &mut Surroundings<'_, '_>, sqe: &Sqe) -> Result<Answer, Status> {
        let invalid = permanent(StatusCode::INVALID_FIELD_IN_COMMAND);
        let fid = sqe.fid();
        let capabilities = self.features.capabilities(fid).ok_or(invalid)?;
        if sqe.sv() && !capabilities.contains(FeatureCapabilities::SAVEABLE) {
            return Err(permanent(StatusCode::FEATURE_IDENTIFIER_NOT_SAVEABLE));
        }
        if !capabilities.contains(FeatureCapabilities::NAMESPACE_SPECIFIC) && !matches!(sqe.nsid, 0 | NSID_ALL) {
            let valid = around.namespaces.is_valid(sqe.nsid);
            let code = if valid {
                StatusCode::FEATURE_NOT_NAMESPACE_SPECIFIC
            } else {
                StatusCode::INVALID_NAMESPACE_OR_FORMAT
            };
            return Err(permanent(code));
        }
        if !capabilities.contains(FeatureCapabilities::CHANGEABLE) {
            return Err(permanent(StatusCode::FEATURE_NOT_CHANGEABLE));
        }
        match fid {
            FeatureIdentifier::NUMBER_OF_QUEUES => return self.features.set_number_of_queues(sqe, around.queues),
            FeatureIdentifier::VOLATILE_WRITE_CACHE => {
                self.features.set_cached(sqe.cdw11 & WCE != 0, around.namespaces)?;
            }
            FeatureIdentifier::TEMPERATURE_THRESHOLD => {
                let word = TemperatureThreshold::from_bits(sqe.cdw11);
                if !matches!(word.tmpsel(), 0 | ALL_TEMPERATURES) {
                    return Err(invalid);
                }
                *self.features.threshold(word)? = word.tmpth();
            }
            FeatureIdentifier::ERROR_RECOVERY => {
                if sqe.cdw11 & !TLER != 0 {
                    return Err(invalid);
                }
                if sqe.nsid != NSID_ALL {
                    around.namespaces.find(sqe.nsid)?;
                }
                let named = |nsid| sqe.nsid == NSID_ALL || sqe.nsid == nsid;
                for entry in around.namespaces.iter_mut().filter(|entry| named(entry.nsid)) {
                    entry.error_recovery = sqe.cdw11;
                }
            }
            FeatureIdentifier::INTERRUPT_VECTOR_CONFIGURATION => {
                *self.features.vector(sqe.cdw11)? = sqe.cdw11 & CD != 0;
            }
            FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION => {
                // Bits of events that OAES does not have are reserved.
                self.events.set_wanted(AsynchronousEventConfiguration::from_bits(sqe.cdw11 & EVENTS));
            }
            FeatureIdentifier::TIMESTAMP => {
                let bytes = self.receive(around, sqe, TIMESTAMP_BYTES)?;
                let word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                self.features.timestamp = (word & TIMESTAMP_BITS, Instant::now(), true);
            }
            FeatureIdentifier::HOST_IDENTIFIER => {
                let bytes = self.receive(around, sqe, host_identifier_bytes(sqe))?;
                self.features.host_identifier = [0; 16];
                self.features.host_identifier[..bytes.len()].copy_from_slice(&bytes);
                self.features.host_extended = sqe.exhid();
            }
            FeatureIdentifier::RESERVATION_NOTIFICATION_MASK | FeatureIdentifier::RESERVATION_PERSISTENCE => {
                if sqe.nsid != NSID_ALL {
                    around.namespaces.find(sqe.nsid)?;
                }
                let named = |nsid| sqe.nsid == NSID_ALL || sqe.nsid == nsid;
                for entry in around.namespaces.iter_mut().filter(|entry| named(entry.nsid)) {
                    if fid == FeatureIdentifier::RESERVATION_PERSISTENCE {
                        entry.namespace.reservations.ptpl = sqe.cdw11 & PTPL != 0;
                    } else {
                        self.features.reservation_masks.insert(entry.nsid, sqe.cdw11 & RESERVATION_MASKS);
                    }
                }
            }
            _ => {
                let feature = self.features.plain.iter_mut().find(|feature| feature.fid == fid).ok_or(invalid)?;
                feature.current = sqe.cdw11 & feature.mask;
                if sqe.sv() {
                    feature.saved = feature.current;
                }
            }
        }
        Ok(Answer::Done(0))
    }

    pub(super) fn get_features(&mut self, around: &mut Surroundings<'_, '_>, sqe: &Sqe) -> Result<Answer, Status> {
        let invalid = permanent(StatusCode::INVALID_FIELD_IN_COMMAND);
        let fid = sqe.fid();
        let capabilities = self.features.capabilities(fid).ok_or(invalid)?;
        let current = match sqe.sel() {
            Select::CURRENT => true,
            // What cannot be saved is as at first after a reset (Base 2.1, 4.4).
            Select::DEFAULT | Select::SAVED => false,
            Select::SUPPORTED_CAPABILITIES => return Ok(Answer::Done(capabilities.raw())),
            _ => return Err(invalid),
        };
        let either = |now: u32, first: u32| Ok(Answer::Done(if current { now } else { first }));
        match fid {
            FeatureIdentifier::NUMBER_OF_QUEUES => {
                either(self.features.granted.bits(), all_queues(self.features.queues).bits())
            }
            FeatureIdentifier::VOLATILE_WRITE_CACHE => either(self.features.cached.into(), WCE),
            FeatureIdentifier::POWER_MANAGEMENT => Ok(Answer::Done(0)),
            FeatureIdentifier::TEMPERATURE_THRESHOLD => {
                let word = TemperatureThreshold::from_bits(sqe.cdw11);
                if word.tmpsel() != 0 {
                    return Err(invalid);
                }
                let first = if word.thsel() == ThresholdType::OVER { WCTEMP } else { 0 };
                let now = *self.features.threshold(word)?;
                either(now.into(), first.into())
            }
            FeatureIdentifier::ERROR_RECOVERY => either(around.namespaces.find(sqe.nsid)?.error_recovery, 0),
            FeatureIdentifier::INTERRUPT_VECTOR_CONFIGURATION => {
                let vector = sqe.cdw11 & 0xFFFF;
                let disabled = *self.features.vector(vector)?;
                either(vector | if disabled { CD } else { 0 }, vector)
            }
            FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION => either(self.events.wanted().bits(), 0),
            FeatureIdentifier::RESERVATION_NOTIFICATION_MASK => {
                let nsid = around.namespaces.find(sqe.nsid)?.nsid;
                either(self.features.reservation_masks.get(&nsid).copied().unwrap_or(0), 0)
            }
            FeatureIdentifier::RESERVATION_PERSISTENCE => {
                either(around.namespaces.find(sqe.nsid)?.namespace.reservations.ptpl.into(), 0)
            }
            FeatureIdentifier::TIMESTAMP => {
                let word = if current { self.features.timestamp_now() } else { 0 };
                Ok(Answer::Data(word.to_le_bytes().to_vec(), TIMESTAMP_BYTES))
            }
            FeatureIdentifier::HOST_IDENTIFIER => {
                let len = host_identifier_bytes(sqe);
                let identifier = if current { self.features.host_identifier } else { [0; 16] };
                Ok(Answer::Data(identifier[..len as usize].to_vec(), len))
            }
            _ => {
                let feature = self.features.plain.iter().find(|feature| feature.fid == fid).ok_or(invalid)?;
                either(feature.current, if sqe.sel() == Select::SAVED { feature.saved } else { 0 })
            }
        }
    }
}
