//! The registers of the Controller Memory Buffer (NVM Express Base 2.1, 3.1.4.11, 3.1.4.12, 3.1.4.16 and 3.1.4.17).

use std::sync::Arc;

use super::super::iommu::Window;
use crate::spec::registers::{Cmbloc, Cmbmsc, Cmbsts, Cmbsz, offset};

/// The BAR that the buffer is in, at its start.
const BAR: u8 = 2;
const CMBMSC_HIGH: u64 = offset::CMBMSC + 4;
/// CRE, CMSE and CBA.
const CMBMSC_BITS: u64 = !0xFFC;

/// The registers, and the memory that they open and close.
#[derive(Default)]
pub(super) struct MemoryBufferRegisters {
    window: Option<Arc<Window>>,
    msc: Cmbmsc,
    sts: Cmbsts,
}

impl MemoryBufferRegisters {
    pub(super) fn new(window: Arc<Window>) -> Self {
        Self { window: Some(window), ..Self::default() }
    }

    /// What the register at `offset` reads as; 0 for all of them without a buffer.
    pub(super) fn read(&self, offset: u64) -> u32 {
        let Some(window) = &self.window else { return 0 };
        match offset {
            offset::CMBLOC if self.msc.cre() => {
                // Queues, lists and data may lie there and elsewhere in any mixture, queues in one piece each.
                let loc = Cmbloc::default().with_bir(BAR).with_cqmms(true).with_cdpmls(true).with_cdpcils(true);
                loc.with_cdmmms(true).with_cqda(true).bits()
            }
            offset::CMBSZ if self.msc.cre() => {
                let sz = Cmbsz::default().with_sqs(true).with_cqs(true).with_lists(true).with_rds(true).with_wds(true);
                sz.with_sz((window.len() / 4096) as u32).bits()
            }
            offset::CMBMSC => self.msc.bits() as u32,
            CMBMSC_HIGH => (self.msc.bits() >> 32) as u32,
            offset::CMBSTS => self.sts.bits(),
            _ => 0,
        }
    }

    /// Writes half of CMBMSC.
    pub(super) fn write(&mut self, offset: u64, value: u32) {
        let was = self.msc.bits();
        let bits = match offset {
            offset::CMBMSC => was & !0xFFFF_FFFF | u64::from(value),
            CMBMSC_HIGH => was & 0xFFFF_FFFF | u64::from(value) << 32,
            _ => was,
        };
        self.set(bits);
    }

    /// As after power on: the buffer is closed.
    pub(super) fn reset(&mut self) {
        self.set(0);
    }

    fn set(&mut self, bits: u64) {
        let Some(window) = &self.window else { return };
        self.msc = Cmbmsc::from_bits(bits & CMBMSC_BITS);
        let base = self.msc.cba() << 12;
        let fits = base.checked_add(window.len()).is_some();
        self.sts = Cmbsts::default().with_cbai(self.msc.cmse() && !fits);
        window.set_base((self.msc.cmse() && fits).then_some(base));
    }
}
