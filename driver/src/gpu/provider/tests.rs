//! Against a fake of CUDA's address look-up that forgets what is freed and never uses a buffer id twice.

use std::cell::{Cell, RefCell};

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, Copy)]
struct Known {
    base: u64,
    len: u64,
    attributes: PointerAttributes,
}

/// CUDA's table of addresses.
#[derive(Default)]
struct Fake {
    known: RefCell<Vec<Known>>,
    next: Cell<u64>,
    /// The code that every call answers from now on.
    dead: Cell<u32>,
}

impl Fake {
    fn add(&self, base: u64, len: u64, change: impl FnOnce(&mut PointerAttributes)) {
        self.next.set(self.next.get() + 1);
        let mut attributes = PointerAttributes {
            memory_type: DEVICE,
            buffer_id: self.next.get(),
            has_context: true,
            rdma_capable: true,
            ..PointerAttributes::default()
        };
        change(&mut attributes);
        self.known.borrow_mut().push(Known { base, len, attributes });
    }

    fn add_mapping(&self, base: u64, len: u64) {
        self.add(base, len, |made| {
            (made.has_context, made.mapping_base, made.mapping_len) = (false, base, len);
        });
    }

    fn free(&self, base: u64) {
        self.known.borrow_mut().retain(|known| known.base != base);
    }

    fn find(&self, address: u64) -> Result<Option<Known>, CudaError> {
        match self.dead.get() {
            0 => Ok(self
                .known
                .borrow()
                .iter()
                .find(|known| (known.base..known.base + known.len).contains(&address))
                .copied()),
            code => Err(CudaError { call: "cuCtxPushCurrent", code, name: "CUDA_ERROR".to_owned() }),
        }
    }
}

impl PointerQueries for Fake {
    fn attributes(&self, address: u64) -> Result<PointerAttributes, CudaError> {
        Ok(self.find(address)?.map(|known| known.attributes).unwrap_or_default())
    }

    fn address_range(&self, address: u64) -> Result<(u64, u64), CudaError> {
        let found = self.find(address)?.map(|known| (known.base, known.len));
        found.ok_or(CudaError {
            call: "cuMemGetAddressRange",
            code: code::INVALID_VALUE,
            name: "CUDA_ERROR_INVALID_VALUE".to_owned(),
        })
    }
}

const BASE: u64 = 0x7f00_0000_0000;

#[test]
fn an_address_anywhere_inside_is_found_exactly() {
    let fake = Fake::default();
    fake.add(BASE, 1 << 20, |_| ());
    // An address that is no multiple of a GPU page is the caller's business: it is not rounded.
    let placement = locate(&fake, 0, BASE + 4096 + 4, 12).unwrap();
    assert_eq!((placement.address, placement.len, placement.device), (BASE + 4100, 12, 0));
    let allocation =
        Allocation { base: BASE, len: 1 << 20, buffer_id: 1, kind: AllocationKind::Plain, rdma_capable: true };
    assert_eq!(placement.allocations, [allocation]);
    assert!(placement.rdma_capable());
    assert!(locate(&fake, 0, BASE, 1 << 20).is_ok());
}

#[test]
fn pools_and_mappings_are_told_apart() {
    let fake = Fake::default();
    fake.add(BASE, 4096, |made| (made.has_context, made.pool, made.rdma_capable) = (false, true, false));
    fake.add_mapping(2 * BASE, 2 << 20);
    let pool = locate(&fake, 0, BASE, 4096).unwrap();
    assert_eq!((pool.allocations[0].kind, pool.rdma_capable()), (AllocationKind::Pool, false));
    assert_eq!(locate(&fake, 0, 2 * BASE + 5, 1).unwrap().allocations[0].kind, AllocationKind::Mapping);
}

#[test]
fn mappings_side_by_side_are_one_range_and_a_hole_between_them_is_named() {
    let fake = Fake::default();
    for index in [0, 1, 3] {
        fake.add_mapping(BASE + index * 4096, 4096);
    }
    let placement = locate(&fake, 0, BASE + 100, 8000).unwrap();
    assert_eq!(placement.allocations.iter().map(|one| one.base).collect::<Vec<_>>(), [BASE, BASE + 4096]);
    let error = locate(&fake, 0, BASE + 100, 12_000).unwrap_err();
    assert_eq!(error, PlaceError::Hole { address: BASE + 100, len: 12_000, hole: BASE + 8192 });
}

#[test]
fn neighbours_that_are_separate_allocations_are_not_one_range() {
    let fake = Fake::default();
    fake.add(BASE, 4096, |_| ());
    fake.add(BASE + 4096, 4096, |_| ());
    let error = locate(&fake, 0, BASE + 4000, 200).unwrap_err();
    assert_eq!(error, PlaceError::PastAllocation { address: BASE + 4000, len: 200, base: BASE, allocation_len: 4096 });
    assert!(error.to_string().ends_with(": 96 bytes are left there"), "{error}");
    // Nor are a mapping and what lies behind it.
    fake.add_mapping(BASE - 4096, 4096);
    assert!(matches!(locate(&fake, 0, BASE - 10, 20), Err(PlaceError::PastAllocation { allocation_len: 4096, .. })));
}

#[test]
fn what_is_no_fixed_place_is_refused_with_what_would_be_right() {
    let fake = Fake::default();
    for (index, (change, expected)) in [
        ((|made| made.memory_type = HOST) as fn(&mut PointerAttributes), "register it as host memory"),
        (|made| (made.memory_type, made.managed) = (HOST, true), "instead of cuMemAllocManaged"),
        (|made| (made.memory_type, made.managed) = (DEVICE, true), "instead of cuMemAllocManaged"),
        (|made| made.memory_type = ARRAY, "use linear memory"),
        (|made| made.memory_type = 77, "memory type 77"),
        (|made| made.device = 1, "memory of GPU 1, and not of GPU 0"),
        (|made| made.device = -2, "memory of GPU -2"),
    ]
    .into_iter()
    .enumerate()
    {
        let base = BASE + index as u64 * 0x10_0000;
        fake.add(base, 4096, change);
        let message = locate(&fake, 0, base + 8, 8).unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains(&format!("{:#x}", base + 8)), "{message}");
    }
}

#[test]
fn nothing_there_no_bytes_and_no_such_range() {
    let fake = Fake::default();
    assert_eq!(locate(&fake, 0, 0x1234, 1), Err(PlaceError::NotCuda { address: 0x1234 }));
    assert_eq!(locate(&fake, 0, BASE, 0), Err(PlaceError::Length { address: BASE, len: 0 }));
    let error = locate(&fake, 0, u64::MAX - 10, 20).unwrap_err();
    assert!(error.to_string().contains("must be 1 to 10"), "{error}");
}

#[test]
fn freed_memory_is_noticed_also_when_its_address_is_used_again() {
    let fake = Fake::default();
    fake.add(BASE, 4096, |_| ());
    let placement = locate(&fake, 0, BASE, 4096).unwrap();
    assert_eq!(placement.check(&fake), Ok(()));
    fake.free(BASE);
    assert_eq!(placement.check(&fake), Err(PlaceError::Gone { base: BASE }));
    assert_eq!(locate(&fake, 0, BASE, 1), Err(PlaceError::NotCuda { address: BASE }));
    fake.add(BASE, 4096, |_| ());
    assert_eq!(placement.check(&fake), Err(PlaceError::Gone { base: BASE }));
    assert!(locate(&fake, 0, BASE, 1).is_ok());
}

#[test]
fn a_destroyed_context_says_so() {
    let fake = Fake::default();
    fake.add(BASE, 4096, |_| ());
    let placement = locate(&fake, 0, BASE, 4096).unwrap();
    for code in [code::DEINITIALIZED, code::INVALID_CONTEXT, code::CONTEXT_IS_DESTROYED] {
        fake.dead.set(code);
        let error = locate(&fake, 0, BASE, 1).unwrap_err();
        assert!(
            matches!(error, PlaceError::ContextDestroyed { .. }) && error.to_string().contains("open the GPU again")
        );
        assert!(matches!(placement.check(&fake), Err(PlaceError::ContextDestroyed { .. })));
    }
    fake.dead.set(999);
    assert!(matches!(locate(&fake, 0, BASE, 1), Err(PlaceError::Call(_))));
}

/// CUDA that says of an address that it lies somewhere else.
struct Liar;

impl PointerQueries for Liar {
    fn attributes(&self, _: u64) -> Result<PointerAttributes, CudaError> {
        Ok(PointerAttributes { memory_type: DEVICE, mapping_base: 4096, mapping_len: 4096, ..Default::default() })
    }

    fn address_range(&self, _: u64) -> Result<(u64, u64), CudaError> {
        Ok((0, 0))
    }
}

#[test]
fn an_answer_that_does_not_hold_the_address_ends_the_search() {
    assert_eq!(locate(&Liar, 0, 4096, 4096).map(|found| found.len), Ok(4096));
    assert_eq!(locate(&Liar, 0, 4096, 4097), Err(PlaceError::Hole { address: 4096, len: 4097, hole: 8192 }));
    assert_eq!(locate(&Liar, 0, 100, 1), Err(PlaceError::NotCuda { address: 100 }));
}

proptest! {
    #[test]
    fn a_range_is_found_exactly_when_each_of_its_bytes_is_there(
        pieces in prop::collection::vec((0u64..3, 1u64..9), 0..6), start in 0u64..64, len in 1u64..24
    ) {
        let fake = Fake::default();
        let mut at = BASE;
        for (gap, len) in &pieces {
            fake.add_mapping(at + gap, *len);
            at += gap + len;
        }
        let (first, end) = (BASE + start, BASE + start + len);
        let there = |address: u64| fake.find(address).unwrap().is_some();
        match locate(&fake, 0, first, len) {
            Ok(found) => {
                prop_assert!((first..end).all(there));
                let bytes: u64 = found.allocations.iter().map(|one| {
                    (one.base + one.len).min(end) - one.base.max(first)
                }).sum();
                prop_assert_eq!(bytes, len);
            }
            Err(PlaceError::Hole { hole, .. }) => prop_assert!(!there(hole) && (first..hole).all(there)),
            Err(PlaceError::NotCuda { address }) => prop_assert!(address == first && !there(first)),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
