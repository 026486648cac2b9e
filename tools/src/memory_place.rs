//! Where a run's memory is: the host's, or a GPU's.

use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use tentpeg_driver::gpu::{Accelerator, Cuda, Gpu, GpuPaths, LibraryError};
use tentpeg_engine::{ByteSize, Engine, GpuOptions, Memory, Proving};
use thiserror::Error;

use crate::report::{Row, Value};

/// Where memory is.
#[derive(Clone, Debug, Default)]
pub enum Place {
    /// Memory of the host.
    #[default]
    Host,
    /// Memory of the GPU with that number, by CUDA.
    Cuda(u32),
    /// Memory of a GPU that whoever calls this library has: no command line names it.
    Given(Arc<dyn Accelerator>),
}

/// The text names no place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("write host, or cuda: with the number of a GPU, such as cuda:0")]
pub struct PlaceError;

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        match text.split_once(':') {
            None if text == "host" => Ok(Self::Host),
            Some(("cuda", number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                number.parse().map(Self::Cuda).map_err(|_| PlaceError)
            }
            _ => Err(PlaceError),
        }
    }
}

/// The memory of a run cannot be had where it was asked for.
#[derive(Debug, Error)]
pub enum MemoryPlaceError {
    /// Caller: an option for GPU memory, and the memory is the host's.
    #[error(
        "{option} is about GPU memory, and the memory is the host's: name a GPU, by --memory cuda:0, or leave it away"
    )]
    HostMemory {
        /// The option.
        option: &'static str,
    },
    /// Host: there is no CUDA, or no such GPU.
    #[error("--memory: {0}")]
    Gpu(#[from] LibraryError),
}

/// Where a run's memory is, as the user says.
#[derive(Args, Clone, Debug)]
pub struct MemoryArgs {
    /// Where the memory is that blocks are read into and written from: host, or cuda:0 for that of a GPU, which fills and
    /// compares them itself
    #[arg(long = "memory", value_name = "PLACE", default_value = "host")]
    pub place: Place,
    /// Which ways to GPU memory are allowed: auto, direct, staged, dma-buf, gdrdrv or iommufd
    #[arg(long, value_name = "WAY", default_value = "auto")]
    pub gpu_path: GpuPaths,
    /// The most of a GPU's BAR1 that may be mapped for direct ways, such as 8GiB [default: all that is free]
    #[arg(long, value_name = "SIZE")]
    pub gpu_bar1: Option<ByteSize>,
    /// Whether a direct way is proved with data, by the scratch extents of labels: auto (where there are any), required, or off
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub gpu_proof: Proving,
}

impl MemoryArgs {
    /// The GPU, opened; `None`: the memory is the host's.
    ///
    /// # Errors
    /// [`MemoryPlaceError`].
    pub fn open(&self) -> Result<Option<GpuOptions>, MemoryPlaceError> {
        let accelerator: Arc<dyn Accelerator> = match &self.place {
            Place::Host => {
                return self.given().map_or(Ok(None), |option| Err(MemoryPlaceError::HostMemory { option }));
            }
            Place::Cuda(ordinal) => Gpu::open(&Cuda::load()?, *ordinal)?,
            Place::Given(accelerator) => Arc::clone(accelerator),
        };
        let (paths, bar1, proving) = (self.gpu_path, self.gpu_bar1.map(|size| size.0), self.gpu_proof);
        Ok(Some(GpuOptions { paths, bar1, proving, ..GpuOptions::new(accelerator) }))
    }

    /// The first option that is for GPU memory only, where one was given that says other than the default.
    fn given(&self) -> Option<&'static str> {
        let given = [
            (self.gpu_path != GpuPaths::all(), "--gpu-path"),
            (self.gpu_bar1.is_some(), "--gpu-bar1"),
            (self.gpu_proof != Proving::default(), "--gpu-proof"),
        ];
        given.into_iter().find(|(given, _)| *given).map(|(_, option)| option)
    }

    /// Whether the memory is a GPU's.
    pub fn is_gpu(&self) -> bool {
        !matches!(self.place, Place::Host)
    }

    /// How a report shows it: where the memory was asked for, and what GPU that is.
    pub fn rows(&self, engine: &Engine) -> Vec<Row> {
        let place = match &self.place {
            Place::Host => "host".to_owned(),
            Place::Cuda(ordinal) => format!("cuda:{ordinal}"),
            Place::Given(accelerator) => accelerator.info().name.clone(),
        };
        let mut rows = vec![Row::both("memory_place", "memory", Value::Text(place))];
        if let Some(gpu) = engine.gpu() {
            let info = gpu.info();
            let text = format!("{}, {}, CUDA {}", info.name, info.pci_address, gpu.driver());
            rows.push(Row::both("gpu", "GPU", Value::Text(text)));
        }
        rows
    }
}

/// Kernels that a GPU has been given since a run's start.
#[derive(Clone, Copy, Debug)]
pub struct Launches(u64);

impl Launches {
    /// Up to now.
    pub fn so_far(engine: &Engine) -> Self {
        Self(engine.gpu().map_or(0, |gpu| gpu.launches()))
    }

    /// Those since then, as a report shows them, where there is a GPU.
    pub fn rows(self, engine: &Engine) -> Option<Row> {
        let gpu = engine.gpu()?;
        Some(Row::both("kernel_launches", "kernels launched", Value::Count(gpu.launches().wrapping_sub(self.0))))
    }
}

/// What memory stands on, as a report has it.
pub fn stands_on(memory: &Memory) -> String {
    match memory.pages() {
        Some(pages) => pages.to_string(),
        None if memory.is_gpu() => "GPU memory".to_owned(),
        None => String::new(),
    }
}

/// The way of a GPU's memory, and how far it was proved.
pub fn way(memory: &Memory) -> String {
    match memory.proof() {
        Some(proof) => format!("{}; {proof}", memory.path()),
        None => memory.path().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        memory: MemoryArgs,
    }

    #[test]
    fn what_is_for_gpu_memory_alone_is_refused_without_a_gpu() {
        let open = |words: &str| {
            let line: Line = clap::Parser::parse_from(["run"].into_iter().chain(words.split_whitespace()));
            line.memory.open().map(|gpu| gpu.is_none()).map_err(|error| error.to_string())
        };
        assert_eq!(open(""), Ok(true));
        assert_eq!(open("--memory host --gpu-path auto --gpu-proof auto"), Ok(true));
        for (option, words) in
            [("--gpu-path", "--gpu-path staged"), ("--gpu-bar1", "--gpu-bar1 1GiB"), ("--gpu-proof", "--gpu-proof off")]
        {
            let error = open(words).unwrap_err();
            assert!(error.starts_with(option) && error.contains("by --memory cuda:0"), "{error}");
        }
    }

    #[test]
    fn places_are_read_and_others_told_what_is_right() {
        assert!(matches!("host".parse(), Ok(Place::Host)));
        assert!(matches!("cuda:3".parse(), Ok(Place::Cuda(3))));
        for wrong in ["", "gpu", "cuda", "cuda:", "cuda:x", "cuda:+1", "host:0", "cuda:99999999999"] {
            assert_eq!(wrong.parse::<Place>().unwrap_err(), PlaceError, "{wrong}");
        }
    }
}
