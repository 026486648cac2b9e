//! A controller, and another function's memory that it reaches.

use tentpeg_driver::dma::{Access, Iova, Region};
use tentpeg_driver::queue::{Extent, QueuePair};
use tentpeg_driver::vfio::{BarMemory, VfioDevice};
use tentpeg_engine::OpCode;

use super::checks::Functions;
use super::tier::{bench_on, open_two};
use crate::device_tests::{Bench, Ending, Verdict};

/// A controller with a queue pair, and another function's memory in the same address space.
pub(super) struct BarBench {
    pub(super) bench: Bench,
    pub(super) pair: QueuePair<u32>,
    pub(super) bar: Region<BarMemory>,
    /// The function whose memory it is.
    pub(super) memory: VfioDevice,
}

impl BarBench {
    pub(super) fn open(functions: &Functions) -> Result<Self, Ending> {
        let Functions { sysfs, settings, controller, memory, .. } = functions;
        let [controller, memory] = open_two(sysfs, [*controller, *memory], settings.way)?;
        Self::on(controller, memory, functions.bar)
    }

    /// On two devices of one address space.
    pub(super) fn on(controller: VfioDevice, memory: VfioDevice, bar: u32) -> Result<Self, Ending> {
        let bar = memory.dma().register(memory.bar(bar)?, Access::all())?;
        let mut bench = bench_on(controller)?;
        let pair = bench.pair(64)?;
        Ok(Self { bench, pair, bar, memory })
    }

    /// Moves `len` bytes between `region` from `at` on and the device from `offset` on, in the longest commands.
    pub(super) fn move_bytes(
        &mut self,
        opcode: OpCode,
        region: (Iova, u64),
        at: u64,
        offset: u64,
        len: u64,
    ) -> Verdict {
        let longest = self.bench.limits.max_transfer();
        let mut done = 0;
        while done < len {
            let part = longest.min(len - done);
            let iova = region.0.checked_add(at + done).filter(|_| at + done + part <= region.1);
            let iova = iova.ok_or_else(|| Ending::Failed(format!("{part} bytes at {at}+{done} leave the memory")))?;
            let slba = (offset + done) >> self.bench.limits.lba_shift();
            self.bench.transfer(&mut self.pair, opcode, slba, &[Extent { iova, len: part }])?;
            done += part;
        }
        Ok(())
    }

    pub(super) fn bar(&self) -> (Iova, u64) {
        (self.bar.iova(), self.bar.range().len())
    }
}
