//! The ranges of a Dataset Management command (NVM Command Set 1.1, 3.3.3).

use thiserror::Error;
use zerocopy::IntoBytes;

use super::limits::Limits;
use super::prp::Extent;
use crate::dma::{Backing, Region};
use crate::spec::ZeroesBased;
use crate::spec::command::DatasetManagementRange;

/// Bytes of one range.
const RANGE: usize = size_of::<DatasetManagementRange>();

/// Why a list of ranges was not written. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RangeError {
    /// No range, or more than a command may have.
    #[error("{count} ranges: a command has 1 to {max}")]
    Count {
        /// Ranges given.
        count: usize,
        /// The most that the device takes.
        max: u32,
    },
    /// A range of no blocks, or of blocks that the namespace does not have.
    #[error("range {index}, {nlb} blocks from {slba}, must have 1 block or more and end within the namespace's {nsze}")]
    OutOfRange {
        /// Which range.
        index: usize,
        /// Its first block.
        slba: u64,
        /// Its length in blocks.
        nlb: u32,
        /// Blocks of the namespace.
        nsze: u64,
    },
    /// A range that is longer than the device takes.
    #[error("range {index} has {nlb} blocks: {max} are the most (DMRSL)")]
    RangeTooLong {
        /// Which range.
        index: usize,
        /// Its length in blocks.
        nlb: u32,
        /// The most that the device takes.
        max: u32,
    },
    /// More blocks than the device takes.
    #[error("the ranges have {nlb} blocks: {max} are the most of a command (DMSL)")]
    TooManyBlocks {
        /// Blocks of all ranges.
        nlb: u64,
        /// The most that the device takes.
        max: u64,
    },
    /// The list does not lie in the region, or not on a dword.
    #[error(
        "a list of {bytes} bytes at offset {offset} of a region of {len} bytes: it must be inside, on a multiple of 4"
    )]
    Place {
        /// Where it would begin.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Bytes of the region.
        len: u64,
    },
}

/// A list of ranges that lies in DMA memory, checked against a namespace.
///
/// It borrows nothing: the region is the caller's, who keeps it, and keeps it as it is, until the command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeList {
    extent: [Extent; 1],
    nr: ZeroesBased<u8>,
}

impl RangeList {
    /// Checks `ranges` against `limits` and writes them to `offset` of `region`.
    ///
    /// # Errors
    /// [`RangeError`]; nothing was written then.
    pub fn write<B: Backing>(
        limits: &Limits,
        ranges: &[DatasetManagementRange],
        region: &Region<B>,
        offset: u64,
    ) -> Result<Self, RangeError> {
        let nsze = limits.nsze();
        let most = limits.optional();
        let count = ranges.len();
        let nr =
            u32::try_from(count).ok().filter(|count| *count <= most.ranges).and_then(ZeroesBased::<u8>::from_count);
        let nr = nr.ok_or(RangeError::Count { count, max: most.ranges })?;
        let mut blocks = 0u64;
        for (index, range) in ranges.iter().enumerate() {
            let (slba, nlb) = (range.slba, range.lengthlb);
            if nlb == 0 || slba.checked_add(nlb.into()).is_none_or(|end| end > nsze) {
                return Err(RangeError::OutOfRange { index, slba, nlb, nsze });
            }
            if nlb > most.range {
                return Err(RangeError::RangeTooLong { index, nlb, max: most.range });
            }
            blocks += u64::from(nlb);
        }
        if blocks > most.dataset {
            return Err(RangeError::TooManyBlocks { nlb: blocks, max: most.dataset });
        }
        let (bytes, len) = ((count * RANGE) as u64, region.view().len() as u64);
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= len);
        let iova = region.iova_at(offset).filter(|iova| inside && iova.get().is_multiple_of(4));
        let iova = iova.ok_or(RangeError::Place { offset, bytes, len })?;
        region.view().write(offset as usize, ranges.as_bytes());
        Ok(Self { extent: [Extent { iova, len: bytes }], nr })
    }

    /// Where the list lies.
    pub(super) fn extents(&self) -> &[Extent] {
        &self.extent
    }

    /// How many ranges it has.
    pub(super) fn nr(&self) -> ZeroesBased<u8> {
        self.nr
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::{Access, HostMemory};
    use crate::model::SoftwareIommu;
    use crate::queue::{ControllerLimits, IoCommand, IoError, OptionalCommands};
    use crate::spec::identify::{IdentifyController, IdentifyControllerNvm, IdentifyNamespace, LbaFormat, Oncs};
    use crate::spec::registers::Cap;

    fn limits(nvm: &IdentifyControllerNvm) -> Limits {
        limits_with(Oncs::DATASET_MANAGEMENT, nvm)
    }

    fn limits_with(oncs: Oncs, nvm: &IdentifyControllerNvm) -> Limits {
        let cap = Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(127));
        let controller = IdentifyController { oncs, ..IdentifyController::default() };
        let optional = OptionalCommands::of(cap, &controller, Some(nvm));
        let controller = ControllerLimits { optional, ..ControllerLimits::new(cap, 4096, 5).unwrap() };
        let mut namespace = IdentifyNamespace { nsze: 1000, ..IdentifyNamespace::default() };
        namespace.lbaf[0] = LbaFormat { ms: 0, lbads: 12, rp: 0 };
        controller.namespace(&namespace).unwrap()
    }

    fn region() -> Region<HostMemory> {
        let memory = HostMemory::allocate(4096).unwrap();
        SoftwareIommu::new().space().register(memory, Access::all()).unwrap()
    }

    fn range(slba: u64, lengthlb: u32) -> DatasetManagementRange {
        DatasetManagementRange { cattr: 0, lengthlb, slba }
    }

    #[test]
    fn a_list_lies_where_the_command_says() {
        let (limits, region) = (limits(&IdentifyControllerNvm::default()), region());
        let ranges = [range(3, 4), range(999, 1)];
        let list = RangeList::write(&limits, &ranges, &region, 64).unwrap();
        let command = IoCommand::deallocate(&list);
        let sqe = command.sqe(7, &limits).unwrap();
        assert_eq!((sqe.opcode, sqe.nsid, sqe.nr().count(), sqe.ad()), (9, 7, 2, true));
        let [extent] = command.data() else { panic!("one extent") };
        assert_eq!((Some(extent.iova), extent.len), (region.iova_at(64), 32));
        let mut bytes = [0; 32];
        region.view().read(64, &mut bytes);
        assert_eq!(bytes, *ranges.as_bytes());
        let without = limits_with(Oncs::empty(), &IdentifyControllerNvm::default());
        assert!(matches!(command.sqe(7, &without), Err(IoError::Unsupported { .. })));
    }

    #[test]
    fn each_wrong_range_is_named_and_nothing_is_written() {
        let nvm = IdentifyControllerNvm { dmrl: 3, dmrsl: 500, dmsl: 600, ..IdentifyControllerNvm::default() };
        let (limited, any, region) = (limits(&nvm), limits(&IdentifyControllerNvm::default()), region());
        let error = |limits, ranges: &[_], offset| RangeList::write(limits, ranges, &region, offset).unwrap_err();
        assert_eq!(error(&any, &[], 0), RangeError::Count { count: 0, max: 256 });
        assert_eq!(error(&any, &[range(0, 1); 257], 0), RangeError::Count { count: 257, max: 256 });
        assert_eq!(error(&limited, &[range(0, 1); 4], 0), RangeError::Count { count: 4, max: 3 });
        let beyond = RangeError::OutOfRange { index: 1, slba: 999, nlb: 2, nsze: 1000 };
        assert_eq!(error(&any, &[range(0, 1), range(999, 2)], 0), beyond);
        assert!(matches!(error(&any, &[range(u64::MAX, 2)], 0), RangeError::OutOfRange { .. }));
        assert!(matches!(error(&any, &[range(5, 0)], 0), RangeError::OutOfRange { index: 0, .. }));
        let long = RangeError::RangeTooLong { index: 0, nlb: 501, max: 500 };
        assert_eq!(error(&limited, &[range(0, 501)], 0), long);
        let many = RangeError::TooManyBlocks { nlb: 601, max: 600 };
        assert_eq!(error(&limited, &[range(0, 500), range(500, 101)], 0), many);
        RangeList::write(&limited, &[range(0, 500), range(500, 100)], &region, 0).unwrap();
        region.view().fill(0);
        for offset in [2, 4081, 4096, u64::MAX] {
            let place = RangeError::Place { offset, bytes: 16, len: 4096 };
            assert_eq!(error(&any, &[range(0, 1)], offset), place);
        }
        let mut bytes = [1; 4096];
        region.view().read(0, &mut bytes);
        assert_eq!(bytes, [0; 4096]);
        RangeList::write(&any, &[range(0, 1); 256], &region, 0).unwrap();
    }
}
