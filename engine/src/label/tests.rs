//! What a loss of power leaves of a label, at every byte of everything that is written.

mod controls;
mod crash;
mod random;
mod rig;
