//! A driver's life with a device that a fuzzer plays, step by step as the input says.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tentpeg_driver::bus::Function;
use tentpeg_driver::controller::{
    Attended, Controller, ControllerConfig, FormatSettings, HostIdentifier, Namespace, RecoveryConfig, SanitizeSettings,
};
use tentpeg_driver::dma::{Access, HostMemory, PageSize, Region};
use tentpeg_driver::queue::{Extent, IoCommand, Limits, MetadataPlacement, QueuePair, RangeList};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::{
    CommitAction, DatasetManagementRange, SanitizeAction, SecureEraseSettings, SelfTestCode, Sqe,
};

use super::device::Device;
use super::mappings::Mappings;
use super::{Input, Reached};

/// The most steps of a run, over all lives of its controller.
const STEPS: usize = 64;
/// How often a controller is enabled.
const LIVES: usize = 3;
/// Bytes of memory for data.
const DATA: usize = 64 << 10;

/// A queue pair and the commands that it owes an end.
struct Lane {
    pair: QueuePair<u32>,
    in_flight: HashSet<u32>,
}

struct Script {
    input: Arc<Mutex<Input>>,
    device: Arc<Device>,
    data: Region<HostMemory>,
    lanes: Vec<Lane>,
    /// What was last said of a namespace.
    namespace: Option<Namespace>,
    next_token: u32,
    now: u32,
    steps: usize,
    reached: Reached,
}

/// Enables controllers and works with them, whatever the device answers.
///
/// # Panics
/// When the driver breaks a promise: a command that ends twice or was never issued, a doorbell while CC.EN is 0 or out
/// of its queue, a mapping that is left.
pub fn device(data: &[u8]) -> Reached {
    let input = Arc::new(Mutex::new(Input::new(data)));
    let mappings = Arc::new(Mappings::default());
    let device = Arc::new(Device::new(Arc::clone(&input), Arc::clone(&mappings)));
    let memory = HostMemory::allocate_on(DATA, PageSize::Ordinary).expect("memory");
    let data = device.dma().register(memory, Access::all()).expect("an empty address space");
    let mut script = Script {
        input,
        device,
        data,
        lanes: Vec::new(),
        namespace: None,
        next_token: 0,
        now: 0,
        steps: 0,
        reached: Reached::default(),
    };
    for _ in 0..LIVES {
        script.life();
        if script.is_over() {
            break;
        }
    }
    let reached = std::mem::take(&mut script.reached);
    drop(script);
    assert_eq!(mappings.count(), 0, "mappings are left");
    reached
}

impl Script {
    fn byte(&self) -> u8 {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).u8()
    }

    fn long(&self) -> u64 {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).u64()
    }

    fn is_over(&self) -> bool {
        self.steps >= STEPS || self.input.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn life(&mut self) {
        let size = self.byte();
        // A wait looks once: the device has acted before it, or never does. And none is worth a real moment.
        let config = ControllerConfig {
            admin_entries: u32::from(size & 7) + 2,
            queue_pairs: u16::from(size >> 3 & 3) + 1,
            max_namespaces: 16,
            admin_timeout: Duration::ZERO,
            shutdown_timeout: Duration::ZERO,
            least_ready_timeout: Duration::ZERO,
            longest_wait: Duration::ZERO,
            recovery: RecoveryConfig {
                command_timeout: Duration::from_millis(16),
                abort_timeout: Duration::from_millis(16),
                health_interval: Duration::from_millis(4),
                restarts: u32::from(size >> 6),
            },
            ..ControllerConfig::default()
        };
        let function: Arc<dyn Function> = self.device.clone();
        let Ok(mut controller) = Controller::enable(function, config) else {
            return self.reached.note("not enabled", 1);
        };
        self.reached.note("enabled", 1);
        // What most lives begin with, so that commands have a queue and a namespace.
        if self.byte() < 0xE0 {
            self.look(&mut controller);
            self.create(&mut controller, size);
        }
        while !self.is_over() && controller.removed().is_none() {
            self.steps += 1;
            let step = self.byte();
            if step == 0xFF {
                break;
            }
            self.step(&mut controller, step);
        }
        if self.byte() & 1 == 0 {
            self.reached.note("shut down", u64::from(controller.shutdown().is_ok()));
        } else {
            drop(controller);
        }
        self.lanes.clear();
    }

    fn step(&mut self, controller: &mut Controller, step: u8) {
        match step % 12 {
            0 | 1 => self.submit_io(step),
            2 => self.submit(step),
            3..5 => self.poll(step),
            5 => self.create(controller, step),
            6 => {
                if let Some(number) = usize::from(step).checked_rem(self.lanes.len()) {
                    let mut lane = self.lanes.swap_remove(number);
                    let deleted = controller.delete_queue_pair(&mut lane.pair).is_ok();
                    self.reached.note("queue pairs deleted", u64::from(deleted));
                }
            }
            7 => self.attend(controller),
            8 => self.device.act(),
            9 => self.ask(controller),
            10 => self.look(controller),
            _ => self.device.act(),
        }
    }

    fn create(&mut self, controller: &mut Controller, size: u8) {
        if self.lanes.len() < 4
            && let Ok(pair) = controller.create_queue_pair(u32::from(size >> 4) + 2)
        {
            self.lanes.push(Lane { pair, in_flight: HashSet::new() });
        }
    }

    fn look(&mut self, controller: &mut Controller) {
        let Ok(namespaces) = controller.namespaces() else { return };
        assert!(namespaces.len() <= 16);
        for namespace in namespaces {
            if let Ok(limits) = namespace.limits {
                assert!(limits.max_transfer() <= controller.limits().max_transfer);
                assert!(limits.max_blocks() > 0 && limits.lba_size().is_power_of_two());
                self.namespace = Some(namespace);
                self.reached.note("namespaces", 1);
            }
        }
    }

    /// Asks the controller for something, or tells it to do something.
    fn ask(&mut self, controller: &mut Controller) {
        let (which, value) = (self.byte(), self.byte());
        match which % 24 {
            0 => drop(controller.smart_log()),
            1 => {
                if let Ok(entries) = controller.error_log(value.into()) {
                    assert!(entries.len() <= usize::from(value));
                }
            }
            2 => drop(controller.firmware_slot_log()),
            3 => drop(controller.changed_namespaces()),
            4 => drop(controller.commands_supported_and_effects()),
            5 => drop(controller.device_self_test_log()),
            6 => drop(controller.sanitize_status()),
            7 => drop(controller.volatile_write_cache()),
            8 => drop(controller.set_volatile_write_cache(value & 1 == 1)),
            9 => drop(controller.number_of_queues()),
            10 => {
                if let Ok(configuration) = controller.event_configuration() {
                    let _ = controller.set_event_configuration(configuration);
                }
            }
            11 => {
                if let Ok(arbitration) = controller.arbitration() {
                    let _ = controller.set_arbitration(arbitration);
                }
            }
            12 => drop(controller.host_identifier()),
            13 => drop(controller.set_host_identifier(HostIdentifier::Short([value; 8]))),
            14 => drop(controller.abort(u16::from(value & 3), self.long() as u16)),
            15 => drop(controller.download_firmware(&vec![value; usize::from(value & 7) * 2048])),
            16 => drop(controller.commit_firmware(value & 7, CommitAction::from_raw(value >> 3 & 7))),
            17 => drop(controller.device_self_test(1, SelfTestCode::from_raw(value & 0xF))),
            18 => drop(controller.sanitize(SanitizeSettings::new(SanitizeAction::from_raw(value & 7)))),
            19 => drop(controller.allocated_namespaces()),
            20 => drop(controller.identify_controller_nvm()),
            21 => {
                if let Ok(Some(namespace)) = controller.rescan(u32::from(value & 3)) {
                    let _ = controller.namespace_identity(&namespace);
                    let _ = controller.identify_namespace_nvm(namespace.nsid);
                }
            }
            22 => {
                let settings = FormatSettings {
                    format: value & 3,
                    metadata: MetadataPlacement::Separate,
                    protection: None,
                    secure_erase: SecureEraseSettings::from_raw(value >> 2 & 3),
                };
                if let Some(namespace) = &self.namespace {
                    let _ = controller.format_nvm(namespace, settings, Duration::ZERO);
                }
            }
            _ => {
                let mut delivered = 0;
                if let Ok(count) = controller.poll_events(|_| delivered += 1) {
                    assert_eq!(count, delivered);
                    self.reached.note("events", delivered as u64);
                }
            }
        }
    }

    /// Submits a command on the namespace that was last looked at, within its limits or not.
    fn submit_io(&mut self, step: u8) {
        let Some(number) = usize::from(step >> 4).checked_rem(self.lanes.len()) else { return };
        let Some(Namespace { nsid, limits: Ok(limits), .. }) = self.namespace.clone() else { return };
        let how = self.long();
        // The fuzzer's namespaces have 1,024 blocks, where it does not say otherwise.
        let (slba, nlb) = (how >> 32 & 0x47F, 1 + (how as u32 & 0xF));
        let extents = self.extents(how >> 8, u64::from(nlb) * limits.lba_size());
        let ranges = self.ranges(&limits, slba, nlb);
        let command = match (how >> 4 & 7, &ranges) {
            (0, _) => IoCommand::write(slba, nlb, &extents),
            (1, _) => IoCommand::compare(slba, nlb, &extents),
            (2, _) => IoCommand::verify(slba, nlb),
            (3, _) => IoCommand::write_zeroes(slba, nlb, true),
            (4, _) => IoCommand::flush(),
            (5, Some(ranges)) => IoCommand::deallocate(ranges),
            _ => IoCommand::read(slba, nlb, &extents),
        };
        self.next_token += 1;
        let lane = &mut self.lanes[number];
        if lane.pair.submit_io(nsid, &limits, &command, self.next_token).is_ok() {
            lane.in_flight.insert(self.next_token);
        }
        lane.pair.ring();
    }

    fn ranges(&self, limits: &Limits, slba: u64, nlb: u32) -> Option<RangeList> {
        let range = DatasetManagementRange { slba, lengthlb: nlb, ..DatasetManagementRange::default() };
        RangeList::write(limits, &[range], &self.data, DATA as u64 - 4096).ok()
    }

    /// `len` bytes of our memory in up to three pieces.
    fn extents(&self, how: u64, len: u64) -> Vec<Extent> {
        let mut left = len.min(DATA as u64 / 2);
        let mut at = (how & 0x3F) * 4;
        let mut extents = Vec::new();
        while left > 0 {
            let piece = if extents.len() == 2 { left } else { left.min((how >> 6 & 0xFF) * 17 + 512) };
            if let Some(iova) = self.data.iova_at(at) {
                extents.push(Extent { iova, len: piece });
            }
            at += piece + 256;
            left -= piece;
        }
        extents
    }

    fn submit(&mut self, step: u8) {
        let Some(number) = usize::from(step >> 4).checked_rem(self.lanes.len()) else { return };
        let how = self.long();
        let pages = 1 + (how & 7);
        let offset = ((how >> 8) % (DATA as u64 / 2)) & !3;
        let whole = (how >> 3) & 1 == 0;
        let extents: Vec<Extent> = (0..pages)
            .filter_map(|page| {
                let iova = self.data.iova_at(if whole { page * 8192 } else { offset + page * 4096 })?;
                Some(Extent { iova, len: 4096 })
            })
            .collect();
        let sqe = match how >> 4 & 3 {
            0 => Sqe::write(1, how >> 32, ZeroesBased::<u16>::from_raw(how as u16)),
            1 => Sqe::flush(1),
            _ => Sqe::read(1, how >> 32, ZeroesBased::<u16>::from_raw(how as u16)),
        };
        let lane = &mut self.lanes[number];
        let free = lane.pair.free_slots();
        self.next_token += 1;
        if lane.pair.submit(sqe, &extents, self.next_token).is_ok() {
            lane.in_flight.insert(self.next_token);
            assert_eq!(lane.pair.free_slots() + 1, free);
        } else {
            assert_eq!(lane.pair.free_slots(), free, "a command that was refused took a slot");
        }
        if how & 0x80 == 0 {
            lane.pair.ring();
        }
    }

    fn poll(&mut self, step: u8) {
        for Lane { pair, in_flight } in &mut self.lanes {
            let ended = pair.poll(usize::from(step >> 4) + 1, |completion| {
                assert!(in_flight.remove(&completion.token), "command {} ended twice", completion.token);
            });
            assert_eq!(pair.free_slots() + in_flight.len(), pair.slots());
            self.reached.note("completions", ended as u64);
            self.reached.note("strays", pair.anomalies().total());
        }
    }

    fn attend(&mut self, controller: &mut Controller) {
        self.now = self.now.wrapping_add(u32::from(self.byte()));
        let mut interrupted = Vec::new();
        let mut pairs: Vec<&mut QueuePair<u32>> = self.lanes.iter_mut().map(|lane| &mut lane.pair).collect();
        let attended = controller.attend(&mut pairs, self.now, |token| interrupted.push(token));
        self.reached.note("interrupted", interrupted.len() as u64);
        self.reached.note("recovered", u64::from(matches!(attended, Attended::Recovered { .. })));
        self.reached.note("removed", u64::from(matches!(attended, Attended::Removed { .. })));
        for token in interrupted {
            let ended: usize = self.lanes.iter_mut().map(|lane| usize::from(lane.in_flight.remove(&token))).sum();
            assert_eq!(ended, 1, "command {token} was interrupted, and had ended");
        }
        if !matches!(attended, Attended::Fine) {
            assert!(self.lanes.iter().all(|lane| lane.in_flight.is_empty()), "a command without an end");
            assert!(self.lanes.iter().all(|lane| lane.pair.free_slots() == lane.pair.slots()));
        }
    }
}
