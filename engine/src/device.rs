//! Opening: how a URI becomes a device. Here alone.

mod file_store;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tentpeg_driver::controller::{Controller, ControllerConfig, ControllerError, Namespace};
use tentpeg_driver::dma::DmaSpace;
use tentpeg_driver::model::{Drive, Model, ModelConfig, ModelError, SoftwareIommu, StoreConfig};
use tentpeg_driver::queue::Limits;
use thiserror::Error;

pub use file_store::FileStoreError;

use crate::uri::{DeviceUri, ModelUri, StoreUri, UriError, whole_blocks};
use crate::{ByteSize, LaneMode};

/// The size of a model for which the URI names none.
const DEFAULT_SIZE: ByteSize = ByteSize(1 << 30);

/// Why a device was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Caller: the URI is wrong.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// Caller or host: the file of a store.
    #[error(transparent)]
    File(#[from] FileStoreError),
    /// Caller or host: the model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Device: the controller.
    #[error("{device}: {source}")]
    Controller {
        /// The device.
        device: String,
        /// What is wrong with it.
        source: ControllerError,
    },
    /// Device: it has no namespace that can be served.
    #[error("{device} has no namespace that can be served{}", reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    NoNamespace {
        /// The device.
        device: String,
        /// Why not the first one that it has.
        reason: Option<String>,
    },
    /// Host: no thread.
    #[error("cannot start a thread for a lane: {0}")]
    Thread(std::io::Error),
}

/// An open device: the controller, the namespace that is served, and what stands behind them.
pub(crate) struct Device {
    pub(crate) name: String,
    // In this order: the controller is told to stop before the model that it is goes away.
    pub(crate) controller: Controller,
    pub(crate) namespace: Namespace,
    pub(crate) limits: Limits,
    pub(crate) writable: bool,
    pub(crate) moves_data: bool,
    pub(crate) space: Arc<DmaSpace>,
    pub(crate) model: Model,
    /// The file that was made for it, until all of the engine has been opened.
    created: Option<file_store::Created>,
}

/// A device as an engine and its lane share it; taken out when the engine closes.
pub(crate) type SharedDevice = Arc<Mutex<Option<Device>>>;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these protect is whole at every step, so a panic elsewhere leaves it usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// Opens what `uri` names.
    pub(crate) fn open(uri: &DeviceUri, lane: LaneMode, controller: &ControllerConfig) -> Result<Self, OpenError> {
        let DeviceUri::Model(settings) = uri;
        let (mut config, created) = model_config(settings)?;
        // With the size that it has, whoever chose that.
        let name = DeviceUri::Model(ModelUri { size: Some(ByteSize(config.size)), ..settings.clone() }).to_string();
        config.name.clone_from(&name);
        let writable = !matches!(config.store, StoreConfig::File { writable: false, .. });
        let moves_data = config.store != StoreConfig::Null;
        let iommu = SoftwareIommu::new();
        // A caller who drives the lane drives the model too: everything in one thread.
        let drive = match lane {
            LaneMode::Thread => Drive::Threaded,
            LaneMode::CallerDriven => Drive::Stepped,
        };
        let model = Model::new(config, drive, &iommu)?;
        let failed = |source| OpenError::Controller { device: name.clone(), source };
        let mut controller = Controller::enable(model.function(), controller.clone()).map_err(failed)?;
        let namespaces = controller.namespaces().map_err(failed)?;
        let reason = namespaces.first().and_then(not_served);
        let served = namespaces.into_iter().find(|namespace| not_served(namespace).is_none());
        let served = served.and_then(|namespace| namespace.limits.ok().map(|limits| (namespace, limits)));
        let Some((namespace, limits)) = served else {
            return Err(OpenError::NoNamespace { device: name, reason });
        };
        Ok(Self { name, controller, namespace, limits, writable, moves_data, space: iommu.space(), model, created })
    }

    /// The file that was made for it.
    pub(crate) fn created_file(&self) -> Option<PathBuf> {
        self.created.as_ref().map(|created| created.path().to_owned())
    }

    /// The file that was made for it stays: opening has come to its end.
    pub(crate) fn keep_file(&mut self) {
        if let Some(created) = self.created.take() {
            created.keep();
        }
    }
}

/// Why the engine does not serve a namespace that the driver may well: its segments are bytes, and have no place for
/// metadata.
fn not_served(namespace: &Namespace) -> Option<String> {
    match &namespace.limits {
        Err(error) => Some(error.to_string()),
        Ok(limits) => limits.metadata().map(|metadata| {
            format!(
                "namespace {} has {} bytes of metadata a block: an engine serves namespaces without (format it with MS = 0)",
                namespace.nsid, metadata.size
            )
        }),
    }
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
