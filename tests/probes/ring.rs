//! What `tests/tests/barriers.rs` compiles, for each architecture, to read its assembly: the driver's own `barrier.rs`,
//! `view.rs`, `ring.rs` and `shadow/protocol.rs`, copied beside this file, with as little around them as they need. No other crate has to be
//! built for the target. Of the copies two things differ: everything is inlined, and a doorbell is a [`Register`] and
//! not a trait object. So what a probe does to memory (its first argument) and to the doorbell (its second) stands there
//! in order.

#![crate_type = "lib"]
#![allow(dead_code, reason = "only what the probes use of the files")]

extern crate self as zerocopy;

/// In place of zerocopy's.
#[macro_export]
macro_rules! transmute {
    ($value:expr) => {
        $crate::Words::into($value)
    };
}

pub trait Words {
    type Into;
    fn into(self) -> Self::Into;
}

impl Words for spec::command::Sqe {
    type Into = [u64; 8];
    #[inline(always)]
    fn into(self) -> [u64; 8] {
        self.0
    }
}

impl Words for [u64; 2] {
    type Into = spec::completion::Cqe;
    #[inline(always)]
    fn into(self) -> spec::completion::Cqe {
        spec::completion::Cqe(self)
    }
}

mod bus {
    pub trait Doorbell {
        fn ring(&self, value: u16);
    }

    pub struct Register(pub *mut u32);

    impl Doorbell for Register {
        #[inline(always)]
        fn ring(&self, value: u16) {
            // SAFETY: as the probe's caller promises.
            unsafe { self.0.write_volatile(value.into()) }
        }
    }
}

mod spec {
    pub mod command {
        #[derive(Clone, Copy)]
        pub struct Sqe(pub [u64; 8]);
    }

    pub mod completion {
        #[derive(Clone, Copy)]
        pub struct Cqe(pub [u64; 2]);
    }
}

mod dma {
    #[path = "../barrier.rs"]
    pub mod barrier;
    #[path = "../view.rs"]
    mod view;

    pub use view::DmaView;
}

mod queue {
    use std::ptr::NonNull;
    use std::sync::atomic::Ordering;

    use crate::bus::Register;
    use crate::dma::{DmaView, barrier};
    use crate::spec::command::Sqe;

    #[path = "../protocol.rs"]
    mod protocol;
    #[path = "../ring.rs"]
    mod ring;

    /// A ring's doorbell, which has no shadow here.
    mod shadow {
        use crate::bus::{Doorbell, Register};

        pub struct ShadowWords;

        pub struct RingDoorbell(Register);

        impl RingDoorbell {
            #[inline(always)]
            pub fn new(register: Register) -> Self {
                Self(register)
            }

            pub fn cast_shadow(&mut self, _: Option<ShadowWords>) {}

            #[inline(always)]
            pub fn ring(&mut self, value: u16) -> bool {
                self.0.ring(value);
                true
            }
        }
    }

    /// A shadow and its EventIdx, beside each other.
    struct Words<'a>(DmaView<'a>);

    impl protocol::ShadowMemory for Words<'_> {
        #[inline(always)]
        fn write_shadow(&self, value: u32) {
            self.0.atomic_u32(0).store(value, Ordering::Release);
        }

        #[inline(always)]
        fn shadow_before_event_idx(&self) {
            barrier::store_before_load();
        }

        #[inline(always)]
        fn read_event_idx(&self) -> u32 {
            self.0.atomic_u32(4).load(Ordering::Relaxed)
        }
    }

    /// The view of a probe's memory, without checks that a page passes.
    #[inline(always)]
    fn view<'a>(memory: NonNull<u8>) -> DmaView<'a> {
        // SAFETY: as the probe's caller promises.
        unsafe {
            std::hint::assert_unchecked(memory.addr().get().is_multiple_of(4096));
            DmaView::new(memory, 4096)
        }
    }

    /// # Safety
    /// `memory` is a page of 4,096 bytes, `doorbell` a register, for the call.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn probe_submit(memory: NonNull<u8>, doorbell: *mut u32, sqe: &Sqe) {
        let view = view(memory);
        let mut ring = ring::SubmissionRing::new(0, 4, Register(doorbell));
        ring.push(view, *sqe);
        ring.ring(view);
    }

    /// The second entry is written after the doorbell of the first: what a check must find.
    ///
    /// # Safety
    /// As [`probe_submit`].
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn probe_submit_late(memory: NonNull<u8>, doorbell: *mut u32, sqe: &Sqe) {
        let view = view(memory);
        let mut ring = ring::SubmissionRing::new(0, 4, Register(doorbell));
        ring.push(view, *sqe);
        ring.ring(view);
        ring.push(view, *sqe);
    }

    /// # Safety
    /// As [`probe_submit`].
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn probe_take(memory: NonNull<u8>, doorbell: *mut u32) -> u64 {
        let view = view(memory);
        let mut ring = ring::CompletionRing::new(0, 4, Register(doorbell));
        let Some(cqe) = ring.pop(view) else { return 0 };
        ring.ring(view);
        cqe.0[0] ^ cqe.0[1]
    }

    /// The doorbell is rung, then the next entry is read before its phase: what a check must find.
    ///
    /// # Safety
    /// As [`probe_submit`].
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn probe_take_early(memory: NonNull<u8>, doorbell: *mut u32) -> u64 {
        let view = view(memory);
        let mut words = [0; 2];
        view.read_words(0, &mut words);
        let mut ring = ring::CompletionRing::new(0, 4, Register(doorbell));
        let Some(cqe) = ring.pop(view) else { return 0 };
        ring.ring(view);
        words[0] ^ cqe.0[1]
    }

    /// # Safety
    /// As [`probe_submit`].
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn probe_publish(memory: NonNull<u8>, value: u16) -> bool {
        protocol::Shadow::new(Words(view(memory))).publish(value)
    }
}
