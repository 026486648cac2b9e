//! The tier of the software controller.

use tentpeg_driver::controller::{Controller, ControllerConfig};
use tentpeg_driver::model::{Drive, Model, ModelConfig, SoftwareIommu, StoreConfig};
use tentpeg_engine::{Engine, EngineConfig};

use super::{Bench, Ending, EngineBench, Seen, Tier, Wanted, Witness};

/// Bytes of a model that is made for a test.
const SIZE: u64 = 1 << 30;

/// Models made to order, run by the test or by threads of their own.
pub struct ModelTier {
    name: &'static str,
    drive: Drive,
    moves_data: bool,
}

impl ModelTier {
    /// Everything in the test's own thread.
    pub fn stepped() -> Self {
        Self { name: "model, stepped", drive: Drive::Stepped, moves_data: true }
    }

    /// The model, and an engine's lane, in threads of their own.
    pub fn threaded() -> Self {
        Self { name: "model, threaded", drive: Drive::Threaded, moves_data: true }
    }

    /// A device that says it has moved data and has not: for showing that tests can fail.
    pub fn forgetful() -> Self {
        Self { name: "model, forgetful", drive: Drive::Stepped, moves_data: false }
    }
}

impl Witness for Model {
    fn seen(&self) -> Seen {
        let counters = self.counters();
        Seen {
            commands: counters.io_sqes,
            bytes: counters.read_bytes + counters.write_bytes,
            violations: self.violations().len(),
        }
    }
}

impl Tier for ModelTier {
    fn name(&self) -> &str {
        self.name
    }

    fn controller(&self, wanted: Wanted) -> Result<Bench, Ending> {
        let plain = ModelConfig::default();
        let config = ModelConfig {
            size: SIZE,
            store: if self.moves_data { StoreConfig::Memory } else { StoreConfig::Null },
            lba_size: wanted.lba_size.unwrap_or(plain.lba_size),
            mdts: wanted.mdts.unwrap_or(plain.mdts),
            mqes: wanted.mqes.unwrap_or(plain.mqes),
            mpsmin: wanted.mpsmin.unwrap_or(plain.mpsmin),
            dstrd: wanted.dstrd.unwrap_or(plain.dstrd),
            ..plain
        };
        // Settings that no model can have are a matter of the tier; the reason is the model's own.
        let model = Model::new(config, self.drive, &SoftwareIommu::new())
            .map_err(|error| Ending::Skipped(error.to_string()))?;
        let controller = Controller::enable(model.function(), ControllerConfig::default())?;
        Bench::new(controller, Some(Box::new(model)))
    }

    fn engine(&self, wanted: Wanted, config: EngineConfig) -> Result<EngineBench, Ending> {
        let Wanted { lba_size, mdts, mqes, mpsmin, dstrd } = wanted;
        if (mqes, mpsmin, dstrd) != (None, None, None) {
            return Err(Ending::Skipped(format!("a model's URI has no setting for all of {wanted:?}")));
        }
        let mut uri = format!("model:size={SIZE}");
        if let Some(lba_size) = lba_size {
            uri += &format!(",lba={lba_size}");
        }
        if let Some(mdts) = mdts {
            uri += &format!(",mdts={mdts}");
        }
        if !self.moves_data {
            uri += ",store=null";
        }
        Ok(match self.drive {
            Drive::Stepped => {
                let (engine, lane) = Engine::open_caller_driven(&uri, config)?;
                EngineBench { engine, lane: Some(lane), process: None }
            }
            Drive::Threaded => EngineBench { engine: Engine::open(&uri, config)?, lane: None, process: None },
        })
    }
}
