//! What a rig's devices and segments are like.

use std::fmt;
use std::time::Duration;

use tentpeg_driver::controller::{ControllerConfig, RecoveryConfig};
use tentpeg_driver::model::{CacheConfig, DatasetManagementLimits, DeallocatedRead, IoCommandsConfig, ModelConfig};
use tentpeg_engine::{BlockExtent, Durability, EngineConfig, MemberLayout, SegmentLayout};

use crate::chaos::dice::Dice;

/// Devices of a rig.
pub(super) const DEVICES: usize = 3;

/// The devices of a rig and how they are driven.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) models: Vec<ModelConfig>,
    pub(super) config: EngineConfig,
    /// Whether there is a volatile write cache. A loss of power empties it.
    pub(super) volatile: bool,
    pub(super) lba_size: u64,
    /// Blocks of a chunk.
    chunk: u64,
    /// Blocks of each part of a segment.
    part: u64,
    /// What keeps the segments apart on a device, in blocks.
    gap: u64,
}

impl Shape {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let lba_size = dice.pick(&[512, 512, 4096]);
        let volatile = dice.percent(85);
        let (part, gap) = (dice.between(20, 60), dice.below(3));
        // Not even on one rig are all devices alike.
        let model = |dice: &mut Dice, number: usize| ModelConfig {
            name: format!("device {number}"),
            // Three parts on each device.
            size: 3 * (part + gap) * u64::from(lba_size),
            lba_size,
            mdts: dice.pick(&[0, 1, 2, 3]),
            mqes: dice.pick(&[3, 7, 15, 63, 255]),
            to: 1,
            ready_delay: dice.below(4) as u32,
            flr: dice.percent(80),
            volatile_write_cache: volatile,
            cache_simulation: volatile
                .then(|| CacheConfig { blocks: dice.pick(&[16, 64, 1000]) as u32, write_back: None }),
            io_commands: IoCommandsConfig {
                write_zeroes: dice.percent(70),
                write_zeroes_deallocate: dice.percent(50),
                dataset_management_limits: dice.percent(30).then_some(DatasetManagementLimits {
                    dmrl: 1,
                    dmrsl: 7,
                    dmsl: 7,
                    strict: true,
                }),
                ..IoCommandsConfig::default()
            },
            deallocated_read: dice.pick(&[
                DeallocatedRead::Zeroes,
                DeallocatedRead::Zeroes,
                DeallocatedRead::NotReported,
            ]),
            ..ModelConfig::default()
        };
        let models = (0..DEVICES).map(|number| model(dice, number)).collect();
        let config = EngineConfig {
            queue_entries: dice.between(3, 40) as u32,
            controller: ControllerConfig {
                // Virtual time: an empty turn is 0.2 ms.
                admin_timeout: Duration::from_millis(10),
                shutdown_timeout: Duration::from_millis(10),
                least_ready_timeout: Duration::from_millis(10),
                recovery: RecoveryConfig {
                    command_timeout: Duration::from_millis(40),
                    abort_timeout: Duration::from_millis(10),
                    health_interval: Duration::from_millis(5),
                    ..RecoveryConfig::default()
                },
                ..ControllerConfig::default()
            },
            ..EngineConfig::default()
        };
        Self { models, config, volatile, lba_size: lba_size.into(), chunk: dice.pick(&[1, 2, 3, 8]), part, gap }
    }

    /// A segment in two extents on device 0, one on device 1, and a stripe over all three.
    pub(super) fn layouts(&self, durability: Durability) -> Vec<SegmentLayout> {
        let Self { part, gap, chunk, lba_size, .. } = *self;
        let place = |place: u64| BlockExtent::new(place * (part + gap), part).expect("a shape has blocks");
        let layout = |name: &str, members: Vec<(usize, Vec<u64>)>| SegmentLayout {
            durability,
            unaligned_reads: true,
            members: members
                .into_iter()
                .map(|(device, places)| MemberLayout { device, extents: places.into_iter().map(place).collect() })
                .collect(),
            chunk: chunk * lba_size,
            ..SegmentLayout::whole(name, 0, 0)
        };
        vec![
            // The later place first.
            layout("two extents", vec![(0, vec![2, 0])]),
            layout("one extent", vec![(1, vec![1])]),
            layout("stripe", vec![(2, vec![2, 0]), (0, vec![1]), (1, vec![2, 0])]),
        ]
    }

    /// The devices of each of them.
    pub(super) const SEGMENT_DEVICES: [&'static [usize]; 3] = [&[0], &[1], &[0, 1, 2]];
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { models, config, volatile, lba_size, chunk, part, gap } = self;
        let entries = config.queue_entries;
        write!(
            f,
            "blocks of {lba_size}, volatile cache: {volatile}, {entries} entries; chunks of {chunk} blocks, parts of {part}, {gap} between"
        )?;
        for ModelConfig { name, mdts, mqes, cache_simulation, io_commands, deallocated_read, .. } in models {
            write!(
                f,
                "\n{name}: mdts {mdts}, mqes {mqes}, {cache_simulation:?}, {io_commands:?}, {deallocated_read:?}"
            )?;
        }
        Ok(())
    }
}
