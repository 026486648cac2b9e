//! What Tentpeg writes at both ends of a namespace to say whose it is and which segments it holds.
//!
//! [`create`] makes a label, [`Label::open`] opens it, [`inspect`] looks at it, [`repair`] mends it and [`erase`] removes
//! it. An open [`Label`] is what the label says; each of its changes is lent the device and is on the medium, at both
//! ends, when it returns, or was not made. [`stripe`] has segments that are spread over several devices.
//!
//! Whatever power does, and whatever bytes are on the device: a label opens in its last acknowledged state or the one that
//! was being written, or it does not open, with the reason; and no segment ever shows what another has written.
//! `docs/label.md` has the format to the byte and what survives what.
//!
//! A label knows nothing of controllers: it has [`Blocks`](crate::blocks::Blocks). Exclusive use of the device, other
//! contents of it, and namespaces that take no label (zoned, key-value, write-protected) are the opener's.
//!
//! ```
//! use tentpeg_engine::blocks::memory::MemoryBlocks;
//! use tentpeg_engine::label::{self, Durability, Identity, Label, Mode, NewLabel, NewSegment};
//!
//! let mut device = MemoryBlocks::new(4096, 4096);
//! let identity = Identity { nguid: [7; 16], ..Identity::default() };
//! label::create(&mut device, &NewLabel { identity, ..NewLabel::default() })?;
//!
//! let mut label = Label::open(&mut device, &identity, Mode::ReadWrite)?;
//! let new = NewSegment { name: "kv".into(), capacity: 4 << 20, ..NewSegment::default() };
//! label.create_segment(&mut device, &new)?;
//! let segment = label.segment("kv").expect("it was created");
//! assert_eq!((segment.capacity, segment.extents.len()), (1024, 1));
//! # Ok::<(), tentpeg_engine::label::LabelError>(())
//! ```

mod contents;
mod entry;
mod error;
mod identity;
mod maintain;
mod open;
mod place;
mod segments;
mod slots;
mod space;
pub mod stripe;
mod wire;

pub use contents::MAX_SEGMENTS;
pub use entry::{Durability, NAME_BYTES, NameError, OWNER_NAME_BYTES, SegmentEntry, Stripe};
pub use error::{Finding, Findings, LabelError, Malformed};
pub use identity::{Identity, Owner};
pub use maintain::{NewLabel, Repair, create, erase, inspect, repair};
pub use open::{Label, Mode};
pub use place::{End, SlotPlace};
pub use segments::NewSegment;

use crate::segment::BlockExtent;

#[cfg(test)]
mod tests;
