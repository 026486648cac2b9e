//! A model as a device: from its URI to its function.

use std::sync::Arc;

use tentpeg_driver::model::{Drive, Model, ModelConfig, SoftwareIommu, StoreConfig};

use super::{FileStoreError, Found, OpenError, file_store};
use crate::uri::{DeviceUri, ModelUri, StoreUri, whole_blocks};
use crate::{ByteSize, LaneMode};

/// The size of a model for which the URI names none.
const DEFAULT_SIZE: ByteSize = ByteSize(1 << 30);

/// Makes the model that `settings` name, which reaches what is mapped in `iommu`.
pub(super) fn find(settings: &ModelUri, lane: LaneMode, iommu: &Arc<SoftwareIommu>) -> Result<Found, OpenError> {
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
    let model = Model::new(config, drive, iommu)?;
    Ok(Found { name, function: model.function(), writable, moves_data, model: Some(model), created })
}

/// A model's settings, and the file that was made for it.
fn model_config(uri: &ModelUri) -> Result<(ModelConfig, Option<file_store::Created>), OpenError> {
    let defaults = ModelConfig { lba_size: uri.lba, mdts: uri.mdts, queues: uri.queues, ..ModelConfig::default() };
    let size = uri.size.unwrap_or(DEFAULT_SIZE).0;
    Ok(match &uri.store {
        StoreUri::Memory => (ModelConfig { size, store: StoreConfig::Memory, ..defaults }, None),
        StoreUri::Null => (ModelConfig { size, store: StoreConfig::Null, ..defaults }, None),
        StoreUri::File { path, overwrite } => {
            let file = file_store::find_or_create(path, uri.size, *overwrite)?;
            if whole_blocks(ByteSize(file.size), uri.lba).is_err() {
                let (path, length, block) = (path.clone(), file.size, uri.lba);
                return Err(FileStoreError::NotWholeBlocks { path, length, block }.into());
            }
            let store = StoreConfig::File { path: path.clone(), writable: file.writable };
            (ModelConfig { size: file.size, store, ..defaults }, file.created)
        }
    })
}
