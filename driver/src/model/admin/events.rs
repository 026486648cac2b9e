//! Asynchronous events (NVM Express Base 2.1, 5.1.2 and 5.1.25.1.6).
//!
//! An event completes an Asynchronous Event Request, or waits for one. After that no event of its type is reported
//! until the host has read the log page that the event named.

use std::collections::VecDeque;

use super::super::transfer::permanent;
use super::LateCompletion;
use crate::spec::ZeroesBased;
use crate::spec::command::LogPageIdentifier;
use crate::spec::events::{AsynchronousEvent, AsynchronousEventConfiguration, AsynchronousEventType};
use crate::spec::log::CriticalWarning;
use crate::spec::status::{Status, StatusCode};

/// Types of events: three bits.
const TYPES: usize = 8;

/// Requests, and events that are to be reported.
pub(super) struct Events {
    /// CIDs of requests that wait for an event.
    requests: VecDeque<u16>,
    limit: usize,
    /// Events that have not been reported, each once.
    pending: VecDeque<AsynchronousEvent>,
    /// By type, the log page that the host has to read before another event of the type is reported.
    reported: [Option<LogPageIdentifier>; TYPES],
    wanted: AsynchronousEventConfiguration,
    /// Warnings that have been raised and still stand.
    warned: CriticalWarning,
}

impl Events {
    /// `aerl` as Identify Controller has it.
    pub(super) fn new(aerl: u8) -> Self {
        Self {
            requests: VecDeque::new(),
            limit: ZeroesBased::<u8>::from_raw(aerl).count() as usize,
            pending: VecDeque::new(),
            reported: [None; TYPES],
            wanted: AsynchronousEventConfiguration::default(),
            warned: CriticalWarning::empty(),
        }
    }

    pub(super) fn reset(&mut self) {
        self.requests.clear();
        self.pending.clear();
        self.reported = [None; TYPES];
        self.wanted = AsynchronousEventConfiguration::default();
        self.warned = CriticalWarning::empty();
    }

    pub(super) fn wanted(&self) -> AsynchronousEventConfiguration {
        self.wanted
    }

    pub(super) fn set_wanted(&mut self, wanted: AsynchronousEventConfiguration) {
        self.wanted = wanted;
    }

    /// Whether a request has that CID.
    pub(super) fn waits(&self, cid: u16) -> bool {
        self.requests.contains(&cid)
    }

    pub(super) fn request(&mut self, cid: u16) -> Result<(), Status> {
        if self.requests.len() >= self.limit {
            return Err(permanent(StatusCode::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED));
        }
        self.requests.push_back(cid);
        Ok(())
    }

    /// Takes a request away. Whether it was there.
    pub(super) fn abort(&mut self, cid: u16) -> bool {
        let before = self.requests.len();
        self.requests.retain(|request| *request != cid);
        self.requests.len() < before
    }

    /// Something happened. Kept until it can be reported, where the host wants to know it.
    pub(super) fn raise(&mut self, event: AsynchronousEvent) {
        let wanted = match event {
            AsynchronousEvent::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED => self.wanted.attached_namespace_attribute(),
            AsynchronousEvent::FIRMWARE_ACTIVATION_STARTING => self.wanted.firmware_activation(),
            _ => true,
        };
        if wanted && !self.pending.contains(&event) {
            self.pending.push_back(event);
        }
    }

    /// Looks at the warnings that stand: one that begins, or that the host begins to want, is an event.
    pub(super) fn review(&mut self, warning: CriticalWarning) {
        let due = warning & self.wanted.critical_warnings();
        let new = due.difference(self.warned);
        self.warned = due;
        if new.contains(CriticalWarning::AVAILABLE_SPARE) {
            self.raise(AsynchronousEvent::SPARE_BELOW_THRESHOLD);
        }
        if new.contains(CriticalWarning::TEMPERATURE) {
            self.raise(AsynchronousEvent::TEMPERATURE_THRESHOLD);
        }
        if !new.difference(CriticalWarning::AVAILABLE_SPARE | CriticalWarning::TEMPERATURE).is_empty() {
            self.raise(AsynchronousEvent::NVM_SUBSYSTEM_RELIABILITY);
        }
    }

    /// The host has read log page `lid`: it knows of the events that named it.
    pub(super) fn clear(&mut self, lid: LogPageIdentifier) {
        self.pending.retain(|event| event.log_page() != lid);
        for reported in &mut self.reported {
            if *reported == Some(lid) {
                *reported = None;
            }
        }
    }

    /// What an event told is true no more.
    pub(super) fn forget(&mut self, event: AsynchronousEvent) {
        self.pending.retain(|other| *other != event);
    }

    /// Completes requests with the events that may be reported.
    pub(super) fn deliver(&mut self, late: &mut VecDeque<LateCompletion>) {
        while !self.requests.is_empty() {
            let free = |event: &AsynchronousEvent| self.reported[type_index(event.event_type())].is_none();
            let Some(at) = self.pending.iter().position(free) else { return };
            if let (Some(event), Some(cid)) = (self.pending.remove(at), self.requests.pop_front()) {
                self.reported[type_index(event.event_type())] = Some(event.log_page());
                late.push_back((cid, Ok(event.bits())));
            }
        }
    }
}

fn type_index(event_type: AsynchronousEventType) -> usize {
    usize::from(event_type.raw()) % TYPES
}
