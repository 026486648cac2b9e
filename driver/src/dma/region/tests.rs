use std::sync::Mutex;

use super::*;
use crate::dma::{AddressSpace, IovaAllocator, MapError};

/// What happened, in order.
type Events = Arc<Mutex<Vec<&'static str>>>;

struct Recorder {
    events: Events,
    unmap_fails: bool,
}

impl AddressSpace for Recorder {
    fn page_size(&self) -> u64 {
        4096
    }

    unsafe fn map(&self, _: IovaRange, _: NonNull<u8>, _: Access) -> Result<(), MapError> {
        self.events.lock().unwrap().push("map");
        Ok(())
    }

    fn unmap(&self, range: IovaRange) -> Result<(), MapError> {
        self.events.lock().unwrap().push("unmap");
        if self.unmap_fails { Err(MapError::NotMapped { range }) } else { Ok(()) }
    }
}

struct Bytes {
    events: Events,
    words: Box<[u64; 512]>,
}

// SAFETY: the box's heap memory stays in place until it is dropped; nothing else refers to it.
unsafe impl Backing for Bytes {
    fn base(&self) -> NonNull<u8> {
        NonNull::from(&*self.words).cast()
    }

    fn len(&self) -> usize {
        4096
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.events.lock().unwrap().push("free");
    }
}

fn one_page_space(unmap_fails: bool) -> (Events, Arc<DmaSpace>) {
    let events = Events::default();
    let range = IovaRange::new(Iova::new(0x1000).unwrap(), 0x1000).unwrap();
    let recorder = Recorder { events: Arc::clone(&events), unmap_fails };
    (events, DmaSpace::new(Arc::new(recorder), IovaAllocator::new(&[range], &[])))
}

fn register(events: &Events, space: &Arc<DmaSpace>) -> Result<Region<Bytes>, crate::dma::RegisterError> {
    let backing = Bytes { events: Arc::clone(events), words: Box::new([0; 512]) };
    space.register(backing, Access::all())
}

#[test]
fn unmapped_before_freed() {
    let (events, space) = one_page_space(false);
    drop(register(&events, &space).unwrap());
    assert_eq!(*events.lock().unwrap(), ["map", "unmap", "free"]);
}

#[test]
fn a_dropped_region_retires_its_iovas_and_a_released_one_frees_them() {
    let (events, space) = one_page_space(false);
    register(&events, &space).unwrap().release();
    drop(register(&events, &space).unwrap());
    assert!(register(&events, &space).is_err(), "the only page is retired");
    space.reclaim_retired();
    assert!(register(&events, &space).is_ok());
}

#[test]
fn bytes_that_cannot_be_unmapped_are_leaked() {
    let (events, space) = one_page_space(true);
    register(&events, &space).unwrap().release();
    assert_eq!(*events.lock().unwrap(), ["map", "unmap"], "never freed");
    assert!(register(&events, &space).is_err(), "and its IOVAs are never used again");
}
