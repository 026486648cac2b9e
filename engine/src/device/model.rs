//! A model as a device: from its URI to its function.

use std::sync::Arc;

use tentpeg_driver::model::{CacheConfig, Drive, Model, ModelConfig, ModelError, SoftwareIommu, StoreConfig};

use super::{FileStoreError, Found, OpenError, file_store, serial};
use crate::gpu::GpuOptions;
use crate::uri::{CacheUri, DeviceUri, ModelUri, StoreUri, whole_blocks};
use crate::{ByteSize, LaneMode};

/// The size of a model for which the URI names none.
const DEFAULT_SIZE: ByteSize = ByteSize(1 << 30);

/// Makes the model that `settings` name, which reaches what is mapped in `iommu`: by a mover memory of the GPU, too, of
/// which it has its part beside so many others.
pub(super) fn find(
    settings: &ModelUri,
    lane: LaneMode,
    iommu: &Arc<SoftwareIommu>,
    gpu: Option<(&GpuOptions, u32)>,
) -> Result<Found, OpenError> {
    // One that has a file can have no mover: its bytes are staged, or it is refused, before its file is created.
    let is_file = matches!(settings.store, StoreUri::File { .. });
    let gpu = gpu.filter(|(gpu, _)| gpu.moves() && !(is_file && gpu.stages()));
    if let (Some((gpu, _)), true) = (gpu, is_file) {
        let device = DeviceUri::Model(settings.clone()).to_string();
        return Err(OpenError::GpuNotReached { device, gpu: gpu.name(), source: ModelError::NotMovable });
    }
    let (mut config, created) = model_config(settings)?;
    // With the size that it has, whoever chose that.
    let name = DeviceUri::Model(ModelUri { size: Some(ByteSize(config.size)), ..settings.clone() }).to_string();
    config.name.clone_from(&name);
    let writable = !matches!(config.store, StoreConfig::File { writable: false, .. });
    let moves_data = config.store != StoreConfig::Null;
    // A caller who drives the lane drives the model too: everything in one thread.
    let drive = match lane {
        LaneMode::Thread => Drive::Threaded,
        LaneMode::CallerDriven => Drive::Stepped,
    };
    let model = match gpu {
        None => Model::new(config, drive, iommu)?,
        Some((gpu, sharers)) => {
            let failed = |source| OpenError::Mover { device: name.clone(), gpu: gpu.name(), source };
            let mover = Arc::clone(&gpu.accelerator).mover(sharers).map_err(failed)?;
            let reached = Model::with_mover(config, drive, iommu, mover);
            reached.map_err(|source| OpenError::GpuNotReached { device: name.clone(), gpu: gpu.name(), source })?
        }
    };
    let found = Found::of_function(name, model.function(), writable);
    Ok(Found { moves_data, model: Some(model), created, has_mover: gpu.is_some(), ..found })
}

/// A model's settings, and the file that was made for it.
fn model_config(uri: &ModelUri) -> Result<(ModelConfig, Option<file_store::Created>), OpenError> {
    let defaults = ModelConfig { lba_size: uri.lba, mdts: uri.mdts, queues: uri.queues, ..ModelConfig::default() };
    let size = uri.size.unwrap_or(DEFAULT_SIZE).0;
    let passing = |store| (ModelConfig { size, store, serial: serial::of_memory(), ..defaults.clone() }, None);
    Ok(match &uri.store {
        StoreUri::Memory => passing(StoreConfig::Memory),
        StoreUri::Null => passing(StoreConfig::Null),
        StoreUri::File { path, overwrite } => {
            let file = file_store::find_or_create(path, uri.size, *overwrite)?;
            if whole_blocks("size", ByteSize(file.size), uri.lba).is_err() {
                let (path, length, block) = (path.clone(), file.size, uri.lba);
                return Err(FileStoreError::NotWholeBlocks { path, length, block }.into());
            }
            let store = StoreConfig::File { path: path.clone(), writable: file.writable };
            let cache_simulation = uri.cache.map(|CacheUri { size, seed }| CacheConfig {
                // The URI has been checked for this.
                blocks: u32::try_from(size.0 / u64::from(uri.lba)).unwrap_or(u32::MAX),
                write_back: Some(seed),
            });
            (ModelConfig { size: file.size, store, serial: file.serial, cache_simulation, ..defaults }, file.created)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use crate::{Engine, EngineConfig, OpCode, Request, TransferState};

    #[test]
    fn a_cache_is_empty_after_an_orderly_shutdown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let uri = format!("model:path={},size=1MiB,cache=1MiB,seed=3", path.display());
        let engine = Engine::open(&uri, EngineConfig::default()).unwrap();
        assert!(engine.info().name.contains(",cache=1MiB,seed=3,"), "{}", engine.info().name);
        assert!(engine.info().controller.vwc.present());
        let segment = engine.segments()[0].id;
        let memory = engine.allocate_memory(4096).unwrap();
        memory.view().write(0, &[7; 4096]);
        let batch = engine.allocate_batch(16).unwrap();
        let request = |block: u64| Request {
            opcode: OpCode::Write,
            source: memory.address(),
            target_id: segment,
            target_offset: block * 4096,
            length: 4096,
        };
        engine.submit(&batch, &(0..16).map(request).collect::<Vec<_>>()).unwrap();
        batch.wait(Duration::from_secs(10)).unwrap();
        assert!((0..16).all(|task| batch.status(task).unwrap().state == TransferState::Completed));
        let written = || fs::read(&path).unwrap().chunks(4096).filter(|block| **block == [7; 4096]).count();
        assert!(written() < 16, "the cache holds some");
        drop((batch, memory));
        engine.close().unwrap();
        assert_eq!(written(), 16);
    }
}
