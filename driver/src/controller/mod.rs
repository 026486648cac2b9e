//! A controller, from disabled to shut down (NVM Express Base 2.1, 3.5).
//!
//! [`Controller`] owns the registers and the admin queue of one function. It enables the controller, says what it is
//! and which namespaces it has, and creates and deletes the queue pairs that lanes then own. Every wait has a
//! deadline that the error names. What the controller says is checked before it is used.
//!
//! Commands on namespaces are the lanes' matter. A controller that does not answer is recovered by whoever owns its
//! admin queue ([`Controller::attend`]). Dropping a [`Controller`] disables it, and memory that it could still reach is
//! taken from it by the address space (see [`Region`](crate::dma::Region)).

mod admin;
mod deadline;
mod enable;
mod error;
mod events;
mod features;
mod logs;
mod maintenance;
mod memory_buffer;
mod namespace;
#[cfg(test)]
mod puppet;
pub mod quirks;
mod recovery;
mod reservations;
mod shadow;

use std::sync::Arc;
use std::time::Duration;

pub use error::{ControllerError, Wait};
pub use events::{ChangedNamespaces, Event, EventCounters};
pub use features::HostIdentifier;
pub use maintenance::{FirmwareActivation, FormatSettings, SanitizeSettings};
pub use memory_buffer::MemoryBuffer;
pub use namespace::{Namespace, NamespaceIdentity};
pub use recovery::{Attended, RecoveryConfig, RecoveryCounters};

pub use reservations::{KeyChange, Registered, ReservationReport};

use admin::AdminQueue;
use quirks::{PciId, QUIRKS, Quirk, Quirks};
use recovery::Recovery;

use crate::bus::{Function, Interrupt};
use crate::dma::ReservedIovas;
use crate::queue::{Anomalies, ControllerLimits, DoorbellBuffers, PairCounters, QueuePair, ReachEnd};
use crate::spec::ZeroesBased;
use crate::spec::command::{NumberOfQueues, Sqe};
use crate::spec::identify::IdentifyController;
use crate::spec::registers::{Cap, Cc, Vs, offset};

/// How to drive a controller.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    /// Entries of the admin queues, 2 to 4,096; fewer where the controller has fewer.
    pub admin_entries: u32,
    /// I/O queue pairs to ask for.
    pub queue_pairs: u16,
    /// The longest wait for an admin command.
    pub admin_timeout: Duration,
    /// The longest wait for a shutdown where the controller does not say (Identify Controller, RTD3E).
    pub shutdown_timeout: Duration,
    /// The least wait for CSTS.RDY to follow CC.EN: a controller that says CAP.TO = 0 is still given that time.
    pub least_ready_timeout: Duration,
    /// The longest wait that a controller may ask for (CAP.TO, CRTO.CRWMT, RTD3E, MTFA): what it says can be hours.
    pub longest_wait: Duration,
    /// When recovery begins, and how often its steps are tried.
    pub recovery: RecoveryConfig,
    /// The most requests for asynchronous events that are kept in the controller; 0: events are not wanted.
    pub event_requests: u16,
    /// The most namespaces that are looked at: a controller that lists more is an error.
    pub max_namespaces: u32,
    /// The function's identifiers in PCI configuration space, where they are known: what some [quirks] go by.
    pub pci: Option<PciId>,
    /// The controllers that are known to be different.
    pub quirks: &'static [Quirk],
    /// Whether doorbells are to be in memory where the controller has that (OACS, Doorbell Buffer Config). Of use in a
    /// virtual machine only: there a write to a doorbell is a trap into the host, which this spares it.
    pub shadow_doorbells: bool,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            admin_entries: 32,
            queue_pairs: 8,
            admin_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(10),
            least_ready_timeout: Duration::from_millis(500),
            longest_wait: Duration::from_secs(300),
            recovery: RecoveryConfig::default(),
            event_requests: 4,
            max_namespaces: 1024,
            pci: None,
            quirks: QUIRKS,
            shadow_doorbells: false,
        }
    }
}

/// A queue pair, and what its completion queue interrupts by; `None`: nothing, so it is polled.
pub type PairWithInterrupt<T> = (QueuePair<T>, Option<Box<dyn Interrupt>>);

/// An enabled controller.
pub struct Controller {
    function: Arc<dyn Function>,
    config: ControllerConfig,
    cap: Cap,
    cc: Cc,
    admin: AdminQueue,
    limits: ControllerLimits,
    identify: Box<IdentifyController>,
    quirks: Quirks,
    event_counters: EventCounters,
    /// I/O queue pairs that the controller granted.
    granted: u16,
    /// Which queue identifiers are in use; index 0 is identifier 1.
    in_use: Vec<bool>,
    /// What ended its reach of memory, where that has been ended.
    stopped: Option<ReachEnd>,
    recovery: Recovery,
    /// Doorbells in memory, where the controller knows of them.
    doorbell_buffers: Option<Arc<DoorbellBuffers>>,
    /// Where its commands find its memory buffer, while that is open.
    memory_buffer_iovas: Option<ReservedIovas>,
}

impl Controller {
    /// Enables the controller of `function`, from whatever state it is in, identifies it and asks for queues.
    ///
    /// # Errors
    /// [`ControllerError`]; the controller is disabled again, where it answers.
    pub fn enable(function: Arc<dyn Function>, config: ControllerConfig) -> Result<Self, ControllerError> {
        let started = enable::enable(&function, &config)?;
        let mut controller = Self {
            limits: started.limits,
            admin: started.admin,
            cap: started.cap,
            cc: started.cc,
            identify: Box::new(IdentifyController::default()),
            quirks: Quirks::default(),
            event_counters: EventCounters::default(),
            granted: 0,
            in_use: Vec::new(),
            stopped: None,
            recovery: Recovery::default(),
            doorbell_buffers: None,
            memory_buffer_iovas: None,
            function,
            config,
        };
        let learned = namespace::learn(&mut controller.admin, started.cap, started.cc, &controller.config)?;
        controller.identify = learned.identify;
        controller.limits = learned.limits;
        controller.quirks = learned.quirks;
        controller.granted = controller.ask_for_queues()?;
        controller.in_use = vec![false; controller.granted.into()];
        controller.cast_shadows()?;
        controller.listen()?;
        Ok(controller)
    }

    /// What the driver calls it in messages.
    pub fn name(&self) -> &str {
        self.function.name()
    }

    /// The function that it is.
    pub fn function(&self) -> &Arc<dyn Function> {
        &self.function
    }

    /// Its capabilities, as read when it was enabled.
    pub fn cap(&self) -> Cap {
        self.cap
    }

    /// The version of the specification that it follows.
    pub fn version(&self) -> Vs {
        Vs::from_bits(self.function.read_u32(offset::VS))
    }

    /// What Identify Controller said, and where that is known to be wrong, what is right.
    pub fn identify(&self) -> &IdentifyController {
        &self.identify
    }

    /// The limits of this enable.
    pub fn limits(&self) -> &ControllerLimits {
        &self.limits
    }

    /// How many I/O queue pairs it granted.
    pub fn queue_pairs(&self) -> u16 {
        self.granted
    }

    /// What its admin queue has done since it was last enabled.
    pub fn admin_counters(&self) -> PairCounters {
        self.admin.counters()
    }

    /// What the admin queue was sent since then that belongs to no command.
    pub fn admin_anomalies(&self) -> Anomalies {
        self.admin.anomalies()
    }

    /// What is different about it.
    pub fn quirks(&self) -> Quirks {
        self.quirks
    }

    /// Creates a completion queue and a submission queue of `entries` each, of this controller's identifiers the
    /// lowest that is free.
    ///
    /// # Errors
    /// [`ControllerError`]; no queue is left then.
    pub fn create_queue_pair<T: Copy + Default>(&mut self, entries: u32) -> Result<QueuePair<T>, ControllerError> {
        self.create_pair(entries, false).map(|(pair, _)| pair)
    }

    /// As [`create_queue_pair`](Self::create_queue_pair), with an interrupt of the completion queue's own where the function
    /// has one to give: its vector is the queue's identifier. The controller is told of it in every life.
    ///
    /// # Errors
    /// As there.
    pub fn create_queue_pair_with_interrupt<T: Copy + Default>(
        &mut self,
        entries: u32,
    ) -> Result<PairWithInterrupt<T>, ControllerError> {
        self.create_pair(entries, true)
    }

    fn create_pair<T: Copy + Default>(
        &mut self,
        entries: u32,
        interrupts: bool,
    ) -> Result<PairWithInterrupt<T>, ControllerError> {
        let Some(index) = self.in_use.iter().position(|used| !used) else {
            return Err(ControllerError::NoQueueLeft { granted: self.granted });
        };
        let qid = index as u16 + 1;
        let mut pair = QueuePair::new(&self.function, self.cap, &self.limits, qid, entries)?;
        // A function without it is polled.
        let interrupt = if interrupts { self.function.interrupt(qid).ok() } else { None };
        if interrupt.is_some() {
            pair.set_vector(qid);
        }
        self.create_queues(&mut pair)?;
        self.in_use[index] = true;
        Ok((pair, interrupt))
    }

    /// Deletes both queues of `pair`, whose commands have all ended or will be given up: the controller answers only
    /// when it has stopped working on them. The pair is of no use afterwards; drop it.
    ///
    /// # Errors
    /// [`ControllerError`]; the pair's memory is taken from the controller all the same when it is dropped, and its
    /// identifier is not used again.
    pub fn delete_queue_pair<T: Copy + Default>(&mut self, pair: &mut QueuePair<T>) -> Result<(), ControllerError> {
        let qid = pair.qid();
        self.admin.execute(Sqe::delete_io_submission_queue(qid))?;
        self.admin.execute(Sqe::delete_io_completion_queue(qid))?;
        pair.set_deleted();
        if let Some(used) = self.in_use.get_mut(usize::from(qid).wrapping_sub(1)) {
            *used = false;
        }
        Ok(())
    }

    /// Shuts the controller down in the orderly way, so that nothing in its caches is lost, and ends its reach.
    ///
    /// # Errors
    /// [`ControllerError`] when it does not follow in time, or has been stopped before; its reach has ended all the same.
    pub fn shutdown(mut self) -> Result<(), ControllerError> {
        if let Some(how) = self.stopped {
            // What was in its caches may be lost.
            return Err(ControllerError::Stopped { how });
        }
        let shut = self.say_shutdown();
        let how = self.stop_reach().how();
        shut.and(if how == ReachEnd::NotReady { Ok(()) } else { Err(ControllerError::Stopped { how }) })
    }

    /// Tells the controller to get ready for power off, and waits until it is.
    fn say_shutdown(&self) -> Result<(), ControllerError> {
        // RTD3E is in microseconds, 0 where it is not said (Identify Controller, bytes 91:88).
        let said = Duration::from_micros(self.identify.rtd3e.into()).min(self.config.longest_wait);
        enable::shut_down(&*self.function, self.cap, self.cc, said.max(self.config.shutdown_timeout))
    }

    /// Asks for queue pairs and says how many were granted: the smaller of both kinds, and of what was asked for.
    fn ask_for_queues(&mut self) -> Result<u16, ControllerError> {
        // 65,535 is the most that can be asked for: FFFFh, 0's based, is reserved (5.1.25.2.1).
        let wanted = u32::from(self.config.queue_pairs.max(1));
        let count = ZeroesBased::<u16>::from_count(wanted).unwrap_or(ZeroesBased::<u16>::from_raw(0));
        let answer = self.admin.execute(Sqe::set_number_of_queues(NumberOfQueues::new(count, count)))?;
        let answer = NumberOfQueues::from_bits(answer.dw0);
        Ok(answer.nsq().count().min(answer.ncq().count()).min(wanted) as u16)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if self.stopped.is_none() {
            self.stop_reach();
        }
        self.close_memory_buffer();
    }
}

#[cfg(test)]
mod interrupt_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
