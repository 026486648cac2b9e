//! Where the registers lie in BAR 0, in bytes (NVM Express Base 2.1, 3.1.4; doorbells: NVMe over
//! PCIe Transport 1.1, 3.1.2).

macro_rules! offsets {
    ( $( $name:ident = $value:literal, $text:literal; )+ ) => {
        $( #[doc = concat!($text, ".")] pub const $name: u64 = $value; )+
    };
}

offsets! {
    CAP = 0x00, "Controller Capabilities, 64 bits (3.1.4.1)";
    VS = 0x08, "Version, 32 bits (3.1.4.2)";
    INTMS = 0x0C, "Interrupt Mask Set, 32 bits (3.1.4.3)";
    INTMC = 0x10, "Interrupt Mask Clear, 32 bits (3.1.4.4)";
    CC = 0x14, "Controller Configuration, 32 bits (3.1.4.5)";
    CSTS = 0x1C, "Controller Status, 32 bits (3.1.4.6)";
    NSSR = 0x20, "NVM Subsystem Reset, 32 bits (3.1.4.7)";
    AQA = 0x24, "Admin Queue Attributes, 32 bits (3.1.4.8)";
    ASQ = 0x28, "Admin Submission Queue Base Address, 64 bits (3.1.4.9)";
    ACQ = 0x30, "Admin Completion Queue Base Address, 64 bits (3.1.4.10)";
    CMBLOC = 0x38, "Controller Memory Buffer Location, 32 bits (3.1.4.11)";
    CMBSZ = 0x3C, "Controller Memory Buffer Size, 32 bits (3.1.4.12)";
    BPINFO = 0x40, "Boot Partition Information, 32 bits (3.1.4.13)";
    BPRSEL = 0x44, "Boot Partition Read Select, 32 bits (3.1.4.14)";
    BPMBL = 0x48, "Boot Partition Memory Buffer Location, 64 bits (3.1.4.15)";
    CMBMSC = 0x50, "Controller Memory Buffer Memory Space Control, 64 bits (3.1.4.16)";
    CMBSTS = 0x58, "Controller Memory Buffer Status, 32 bits (3.1.4.17)";
    CMBEBS = 0x5C, "Controller Memory Buffer Elasticity Buffer Size, 32 bits (3.1.4.18)";
    CMBSWTP = 0x60, "Controller Memory Buffer Sustained Write Throughput, 32 bits (3.1.4.19)";
    NSSD = 0x64, "NVM Subsystem Shutdown, 32 bits (3.1.4.20)";
    CRTO = 0x68, "Controller Ready Timeouts, 32 bits (3.1.4.21)";
    PMRCAP = 0xE00, "Persistent Memory Region Capabilities, 32 bits (3.1.4.22)";
    PMRCTL = 0xE04, "Persistent Memory Region Control, 32 bits (3.1.4.23)";
    PMRSTS = 0xE08, "Persistent Memory Region Status, 32 bits (3.1.4.24)";
    PMREBS = 0xE0C, "Persistent Memory Region Elasticity Buffer Size, 32 bits (3.1.4.25)";
    PMRSWTP = 0xE10, "Persistent Memory Region Sustained Write Throughput, 32 bits (3.1.4.26)";
    PMRMSCL = 0xE14, "Persistent Memory Region Memory Space Control Lower, 32 bits (3.1.4.27)";
    PMRMSCU = 0xE18, "Persistent Memory Region Memory Space Control Upper, 32 bits (3.1.4.28)";
    DOORBELLS = 0x1000, "The first doorbell: the Admin Submission Queue's tail (PCIe Transport 1.1, 3.1.2)";
}

/// Which of a queue pair's two doorbells (PCIe Transport 1.1, 3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DoorbellKind {
    /// Submission Queue y Tail Doorbell, SQyTDBL (3.1.2.1).
    SubmissionTail,
    /// Completion Queue y Head Doorbell, CQyHDBL (3.1.2.2).
    CompletionHead,
}

/// Where queue `qid`'s doorbell lies in BAR 0, in bytes, for a stride of 2 ^ (2 + `dstrd`) bytes
/// (PCIe Transport 1.1, 3.1.2). `dstrd` has four bits, as in CAP; others are ignored.
#[inline]
pub const fn doorbell_offset(dstrd: u8, qid: u16, kind: DoorbellKind) -> u64 {
    let index = 2 * qid as u64 + kind as u64;
    DOORBELLS + (index << (2 + (dstrd & 0xF)))
}
