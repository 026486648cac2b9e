//! Reads into memory of the host, each of which is then copied and waited for.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;

use super::{FileRead, FileWayConfig, FileWayError, Reads};
use crate::gpu::device::Gpu;
use crate::gpu::memory::GpuMemory;

/// What O_DIRECT wants of memory.
const ALIGNMENT: usize = 4096;

/// pread and cuMemcpyHtoD, by threads.
pub(super) struct Threads {
    gpu: Arc<Gpu>,
    file: File,
    config: FileWayConfig,
}

impl Threads {
    pub(super) fn new(gpu: &Arc<Gpu>, file: File, config: FileWayConfig) -> Result<Self, FileWayError> {
        Ok(Self { gpu: Arc::clone(gpu), file, config })
    }
}

impl Reads for Threads {
    fn read(&mut self, memory: &GpuMemory, reads: &[FileRead]) -> Result<(), FileWayError> {
        let Self { gpu, file, config } = self;
        let read = |part: &[FileRead]| -> Result<(), FileWayError> {
            let _entered = gpu.enter()?;
            let most = config.most as usize;
            let mut room = vec![0u8; most + ALIGNMENT];
            let start = room.as_ptr().align_offset(ALIGNMENT);
            let buffer = &mut room[start..start + most];
            for FileRead { offset, at, len } in part.iter().copied() {
                let failed = |result| FileWayError::Read { offset, len, result };
                let bytes = buffer.get_mut(..len as usize).ok_or_else(|| failed(0))?;
                file.read_exact_at(bytes, offset)
                    .map_err(|error| failed(-i64::from(error.raw_os_error().unwrap_or(libc::EIO))))?;
                // SAFETY: the target lies in the memory, as the reader has checked; the call waits.
                let code = unsafe {
                    (gpu.cuda().symbols.cuMemcpyHtoD_v2)(memory.address() + at, bytes.as_ptr().cast(), bytes.len())
                };
                gpu.cuda().check("cuMemcpyHtoD", code)?;
            }
            Ok(())
        };
        in_parts(reads, config.threads.max(1) as usize, read)
    }
}

/// Has threads do a part of the list each.
pub(super) fn in_parts(
    reads: &[FileRead],
    threads: usize,
    read: impl Fn(&[FileRead]) -> Result<(), FileWayError> + Sync,
) -> Result<(), FileWayError> {
    let part = reads.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let begun: Vec<_> = reads.chunks(part).map(|part| scope.spawn(|| read(part))).collect();
        let ended = begun.into_iter().map(|thread| thread.join().expect("a thread that reads does not panic"));
        // All of them, whatever the first says.
        ended.fold(Ok(()), Result::and)
    })
}
