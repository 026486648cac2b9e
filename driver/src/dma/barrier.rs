//! Orderings towards a device, by name.
//!
//! Rust's atomics order this program's threads. A device is not one of them: it sees our stores to memory and our
//! stores to its registers through the bus, and what orders those differs by architecture.

/// Makes every earlier store to memory visible to the device before any later store to one of its registers:
/// between the SQEs and the doorbell that tells of them.
///
/// x86-64 keeps stores in order, and its stores to uncached memory too, so only the compiler must be held; AArch64
/// needs a barrier for stores in the outer shareable domain.
#[inline(always)]
pub fn stores_before_doorbell() {
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Release);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier touches neither memory nor registers; without `nomem` the compiler keeps stores before it.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Keeps every later load from memory behind an earlier one: between the dword that shows an entry to be new and
/// the rest of that entry, and the data that it announces.
///
/// x86-64 keeps loads in order; AArch64 needs a barrier for loads in the outer shareable domain.
#[inline(always)]
pub fn loads_after_phase() {
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Acquire);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier touches neither memory nor registers; without `nomem` the compiler keeps loads behind it.
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Completes every earlier load from memory before any later store to a device's register: between the CQEs that were
/// read and the doorbell that gives their places back.
///
/// x86-64 does not move a store before an earlier load; AArch64 needs a barrier for both in the outer shareable domain.
#[inline(always)]
pub fn loads_before_doorbell() {
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Release);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier touches neither memory nor registers; without `nomem` the compiler keeps loads before it.
    unsafe {
        std::arch::asm!("dmb osh", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Keeps every later load from memory behind every earlier store to it: between what is told to a device in memory and
/// the look at what it says there. Both ways of a full barrier; no weaker one orders a load behind a store, on x86-64
/// neither.
#[inline(always)]
pub fn store_before_load() {
    #[cfg(not(target_arch = "aarch64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier touches neither memory nor registers; without `nomem` the compiler keeps accesses on their side.
    unsafe {
        std::arch::asm!("dmb osh", options(nostack, preserves_flags));
    }
}
