//! Images made by the real tools, and by hand where no tool makes one on a plain file, each looked at as devices of
//! several block sizes. `blkid`, which shares no code with us, is asked as well.
//!
//! A tool that is missing is said and passed over; with TENTPEG_NEED_TOOLS=1 it is a failure. The packages are listed in
//! `.ci/foreign-tools`.

mod image;
mod made;
mod tools;
