//! What a run's drives are like, and how they are driven.

use std::time::Duration;

use tentpeg_driver::controller::{ControllerConfig, RecoveryConfig};
use tentpeg_driver::model::{CacheConfig, DeallocatedRead, MetadataConfig, ModelConfig, SglConfig, SglSupport};

use super::dice::Dice;

/// A drive and its owner's settings.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) model: ModelConfig,
    pub(super) controller: ControllerConfig,
    /// Queue pairs at the most, 1 to 4.
    pub(super) pairs: usize,
    /// Entries of a queue that is asked for; the controller may have fewer.
    pub(super) entries: u32,
    /// The memory page of the controller in bytes.
    pub(super) page: usize,
    /// Pages of a region.
    pub(super) region_pages: usize,
}

impl Shape {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let lba_size = dice.pick(&[512, 512, 4096]);
        let blocks = dice.between(24, 400);
        let mpsmin = dice.pick(&[0, 0, 0, 0, 1, 2, 4]);
        let pairs = dice.between(1, 4) as usize;
        let model = ModelConfig {
            name: "chaos".to_owned(),
            size: blocks * u64::from(lba_size),
            lba_size,
            mdts: dice.pick(&[0, 1, 2, 3, 5]),
            mqes: dice.pick(&[1, 2, 3, 7, 15, 31, 63, 127, 1023]),
            dstrd: dice.pick(&[0, 0, 1, 2, 10]),
            to: dice.pick(&[0, 0, 1]),
            mpsmin,
            mpsmax: mpsmin + dice.below(3) as u8,
            queues: dice.between(pairs as u64, 6) as u16,
            ready_delay: dice.below(6) as u32,
            shutdown_delay: dice.below(6) as u32,
            flr: dice.percent(85),
            volatile_write_cache: true,
            cache_simulation: dice
                .percent(25)
                .then(|| CacheConfig { blocks: dice.between(1, 64) as u32, write_back: None }),
            deallocated_read: dice.pick(&[
                DeallocatedRead::Zeroes,
                DeallocatedRead::Zeroes,
                DeallocatedRead::NotReported,
            ]),
            sgl: SglConfig {
                support: dice.pick(&[SglSupport::NotSupported, SglSupport::Byte, SglSupport::Dword]),
                ..SglConfig::default()
            },
            metadata: metadata(dice),
            ..ModelConfig::default()
        };
        let controller = ControllerConfig {
            admin_entries: dice.pick(&[2, 3, 8, 32]),
            queue_pairs: pairs as u16,
            // Virtual time: 50 looks.
            admin_timeout: Duration::from_millis(10),
            shutdown_timeout: Duration::from_millis(10),
            least_ready_timeout: Duration::from_millis(10),
            recovery: RecoveryConfig {
                command_timeout: Duration::from_millis(dice.between(10, 60)),
                abort_timeout: Duration::from_millis(dice.between(5, 20)),
                health_interval: Duration::from_millis(dice.between(1, 20)),
                restarts: dice.between(1, 4) as u32,
            },
            event_requests: dice.below(4) as u16,
            ..ControllerConfig::default()
        };
        let page = 4096 << mpsmin;
        Self {
            model,
            controller,
            pairs,
            entries: dice.between(2, 64) as u32,
            page,
            region_pages: (dice.between(16, 48) as usize >> mpsmin).max(6),
        }
    }

    /// Whether a deallocated block reads as zeroes; else it may also keep what it held.
    pub(super) fn deallocated_is_zero(&self) -> bool {
        self.model.deallocated_read == DeallocatedRead::Zeroes
    }

    pub(super) fn lba_size(&self) -> u64 {
        self.model.lba_size.into()
    }

    pub(super) fn blocks(&self) -> u64 {
        self.model.size / self.lba_size()
    }
}

/// None for half of the drives; else metadata of each size, in either place, with or without protection.
fn metadata(dice: &mut Dice) -> MetadataConfig {
    if dice.percent(50) {
        return MetadataConfig::default();
    }
    MetadataConfig {
        size: dice.pick(&[8, 8, 16, 64]),
        extended: dice.percent(50),
        protection_type: dice.pick(&[0, 1, 1, 2, 3]),
        first_eight: dice.percent(50),
    }
}
