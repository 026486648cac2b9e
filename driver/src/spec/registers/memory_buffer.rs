//! The registers of the Controller Memory Buffer (NVM Express Base 2.1, 3.1.4.11 to 3.1.4.17).

use core::fmt;

wire_word! {
    /// Controller Memory Buffer Location (Base 2.1, 3.1.4.11).
    pub struct Cmbloc(u32) {
        /// Base Indicator Register: the BAR that holds the buffer.
        bir / with_bir [0, 3]: u8;
        /// Queue Mixed Memory Support.
        cqmms / with_cqmms [3, 1]: bool;
        /// Queue Physically Discontiguous Support.
        cqpds / with_cqpds [4, 1]: bool;
        /// Data Pointer Mixed Locations Support.
        cdpmls / with_cdpmls [5, 1]: bool;
        /// Data Pointer and Command Independent Locations Support.
        cdpcils / with_cdpcils [6, 1]: bool;
        /// Data Metadata Mixed Memory Support.
        cdmmms / with_cdmmms [7, 1]: bool;
        /// Queue Dword Alignment.
        cqda / with_cqda [8, 1]: bool;
        /// Offset within the BAR, in units of [`Cmbsz::unit_size`].
        ofst / with_ofst [12, 20]: u32;
    }
}

wire_word! {
    /// Controller Memory Buffer Size (Base 2.1, 3.1.4.12).
    pub struct Cmbsz(u32) {
        /// Submission Queue Support.
        sqs / with_sqs [0, 1]: bool;
        /// Completion Queue Support.
        cqs / with_cqs [1, 1]: bool;
        /// PRP and SGL List Support.
        lists / with_lists [2, 1]: bool;
        /// Read Data Support: the buffer may be the target of a transfer from the controller.
        rds / with_rds [3, 1]: bool;
        /// Write Data Support: the buffer may be the source of a transfer to the controller.
        wds / with_wds [4, 1]: bool;
        /// Size Units: 4 KiB times 16 to this power; 7 and above are reserved.
        szu / with_szu [8, 4]: u8;
        /// Size, in units of [`unit_size`](Self::unit_size).
        sz / with_sz [12, 20]: u32;
    }
}

impl Cmbsz {
    /// The unit of SZ and of CMBLOC.OFST in bytes: 4 KiB to 64 GiB. `None` when SZU is reserved.
    pub const fn unit_size(self) -> Option<u64> {
        match self.szu() {
            szu @ 0..=6 => Some(4096 << (4 * szu)),
            _ => None,
        }
    }

    /// The buffer's size in bytes. `None` when SZU is reserved.
    pub const fn size(self) -> Option<u64> {
        match self.unit_size() {
            Some(unit) => Some(unit * self.sz() as u64),
            None => None,
        }
    }
}

wire_word! {
    /// Controller Memory Buffer Memory Space Control (Base 2.1, 3.1.4.16).
    pub struct Cmbmsc(u64) {
        /// Capabilities Registers Enabled: CMBLOC and CMBSZ may be read.
        cre / with_cre [0, 1]: bool;
        /// Controller Memory Space Enable: CBA is valid.
        cmse / with_cmse [1, 1]: bool;
        /// Controller Base Address, in units of 4 KiB: where commands address the buffer.
        cba / with_cba [12, 52]: u64;
    }
}

wire_word! {
    /// Controller Memory Buffer Status (Base 2.1, 3.1.4.17).
    pub struct Cmbsts(u32) {
        /// Controller Base Address Invalid.
        cbai / with_cbai [0, 1]: bool;
    }
}

macro_rules! debug_as_hex {
    ($($ty:ident),+) => { $(
        impl fmt::Debug for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($ty), "({:#x})"), self.bits())
            }
        }
    )+ };
}

debug_as_hex!(Cmbloc, Cmbsz, Cmbmsc, Cmbsts);
