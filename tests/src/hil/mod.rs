//! Hardware in the loop: the one list of device tests on whatever a machine has, and what is run in a guest that has it
//! all emulated. This is the side of the host; what runs in the guest is [`guest`](crate::guest).
//!
//! `tentpeg hil` is the program `tentpeg-hil`, which does what is here: [`boot`] starts a guest for its tests, [`compare`]
//! one that does the same job by the kernel's driver and by ours, and [`hardware`] has drives that an
//! [`inventory`] names.

pub mod boot;
pub mod compare;
pub mod hardware;
pub mod inventory;
