//! A driver's life with a device that a fuzzer plays, step by step as the input says.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tentpeg_driver::bus::Function;
use tentpeg_driver::controller::{Attended, Controller, ControllerConfig, RecoveryConfig};
use tentpeg_driver::dma::{Access, HostMemory, PageSize, Region};
use tentpeg_driver::queue::{Extent, QueuePair};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::Sqe;

use super::Input;
use super::device::Device;
use super::mappings::Mappings;

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
    next_token: u32,
    now: u32,
    steps: usize,
}

/// Enables controllers and works with them, whatever the device answers.
///
/// # Panics
/// When the driver breaks a promise: a command that ends twice or was never issued, a doorbell while CC.EN is 0 or out
/// of its queue, a mapping that is left.
pub fn device(data: &[u8]) {
    let input = Arc::new(Mutex::new(Input::new(data)));
    let mappings = Arc::new(Mappings::default());
    let device = Arc::new(Device::new(Arc::clone(&input), Arc::clone(&mappings)));
    let memory = HostMemory::allocate_on(DATA, PageSize::Ordinary).expect("memory");
    let data = device.dma().register(memory, Access::all()).expect("an empty address space");
    let mut script = Script { input, device, data, lanes: Vec::new(), next_token: 0, now: 0, steps: 0 };
    for _ in 0..LIVES {
        script.life();
        if script.is_over() {
            break;
        }
    }
    drop(script);
    assert_eq!(mappings.count(), 0, "mappings are left");
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
        let Ok(mut controller) = Controller::enable(function, config) else { return };
        while !self.is_over() && controller.removed().is_none() {
            self.steps += 1;
            let step = self.byte();
            if step == 0xFF {
                break;
            }
            self.step(&mut controller, step);
        }
        if self.byte() & 1 == 0 {
            let _ = controller.shutdown();
        } else {
            drop(controller);
        }
        self.lanes.clear();
    }

    fn step(&mut self, controller: &mut Controller, step: u8) {
        match step % 12 {
            0..3 => self.submit(step),
            3..5 => self.poll(step),
            5 if self.lanes.len() < 4 => {
                if let Ok(pair) = controller.create_queue_pair(u32::from(step >> 4) + 2) {
                    self.lanes.push(Lane { pair, in_flight: HashSet::new() });
                }
            }
            6 => {
                if let Some(number) = usize::from(step).checked_rem(self.lanes.len()) {
                    let mut lane = self.lanes.swap_remove(number);
                    let _ = controller.delete_queue_pair(&mut lane.pair);
                }
            }
            7 => self.attend(controller),
            8 => self.device.act(),
            9 => self.ask(controller),
            10 => {
                if let Ok(namespaces) = controller.namespaces() {
                    for namespace in namespaces {
                        if let Ok(limits) = namespace.limits {
                            assert!(limits.max_transfer() <= controller.limits().max_transfer);
                            assert!(limits.max_blocks() > 0 && limits.lba_size().is_power_of_two());
                        }
                    }
                }
            }
            _ => self.device.act(),
        }
    }

    /// Asks the controller for something about itself.
    fn ask(&mut self, controller: &mut Controller) {
        let _ = controller.smart_log();
        let _ = controller.version();
    }

    fn submit(&mut self, step: u8) {
        let Some(number) = usize::from(step >> 4).checked_rem(self.lanes.len()) else { return };
        let how = self.long();
        let pages = 1 + (how & 7);
        let offset = (how >> 8) % (DATA as u64 / 2) & !3;
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
            pair.poll(usize::from(step >> 4) + 1, |completion| {
                assert!(in_flight.remove(&completion.token), "command {} ended twice", completion.token);
            });
            assert_eq!(pair.free_slots() + in_flight.len(), pair.slots());
        }
    }

    fn attend(&mut self, controller: &mut Controller) {
        self.now = self.now.wrapping_add(u32::from(self.byte()));
        let mut interrupted = Vec::new();
        let mut pairs: Vec<&mut QueuePair<u32>> = self.lanes.iter_mut().map(|lane| &mut lane.pair).collect();
        let attended = controller.attend(&mut pairs, self.now, |token| interrupted.push(token));
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
