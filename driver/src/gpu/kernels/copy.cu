// Copies between GPU memory and pinned host memory, either way, in pieces of any length.
//
// The structures here are those of kernels/mod.rs; the tests there compare their sizes. The PTX beside this file is made
// by tests/gpu/ptx.

#include <cstdint>

constexpr uint32_t WARP = 32;

// Moves `len` bytes from `from` to `to`.
struct Copy {
    uint64_t to;
    uint64_t from;
    uint64_t len;
    uint64_t reserved;
};

// Words of 8 bytes that each are `step` more than the one before.
struct Series {
    uint64_t address;
    uint64_t words;
    uint64_t first;
    uint64_t step;
};

// Loads pass by the L1 cache: the source may be host memory, or have been written since this kernel was started.
template <typename T>
__device__ __forceinline__ T load(const T *from) {
    return __ldcv(from);
}

// Four words as a warp reads them: with one load of a sector, as the list lies behind the link.
struct Words {
    uint64_t word[4];
};

__device__ __forceinline__ Words load_by_warp(const void *from, uint32_t lane) {
    const uint64_t own = load(static_cast<const uint64_t *>(from) + lane % 4);
    Words words;
#pragma unroll
    for (int index = 0; index < 4; index++) {
        words.word[index] = __shfl_sync(0xFFFFFFFF, own, index);
    }
    return words;
}

// One warp copies in units of T, eight loads on their way at a time.
template <typename T>
__device__ void copy_units(T *to, const T *from, uint64_t count, uint32_t lane) {
    constexpr uint32_t AHEAD = 8;
    uint64_t at = lane;
    for (; at + (AHEAD - 1) * WARP < count; at += AHEAD * WARP) {
        T held[AHEAD];
#pragma unroll
        for (uint32_t index = 0; index < AHEAD; index++) {
            held[index] = load(from + at + index * WARP);
        }
#pragma unroll
        for (uint32_t index = 0; index < AHEAD; index++) {
            to[at + index * WARP] = held[index];
        }
    }
    for (; at < count; at += WARP) {
        to[at] = load(from + at);
    }
}

// One warp copies `len` bytes in the largest units that both ends are aligned for.
__device__ void copy_by_warp(uint64_t to, uint64_t from, uint64_t len, uint32_t lane) {
    uint64_t done = 0;
    if (((to | from) & 15) == 0) {
        copy_units(reinterpret_cast<uint4 *>(to), reinterpret_cast<const uint4 *>(from), len / 16, lane);
        done = len / 16 * 16;
    } else if (((to | from) & 3) == 0) {
        copy_units(reinterpret_cast<uint32_t *>(to), reinterpret_cast<const uint32_t *>(from), len / 4, lane);
        done = len / 4 * 4;
    }
    copy_units(reinterpret_cast<uint8_t *>(to + done), reinterpret_cast<const uint8_t *>(from + done), len - done, lane);
}

__device__ __forceinline__ uint64_t warp_of_grid() {
    return (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
}

__device__ __forceinline__ uint64_t warps_of_grid() {
    return uint64_t(gridDim.x) * blockDim.x / WARP;
}

// Copies a list, which may lie in host memory.
extern "C" __global__ void tentpeg_copy(const Copy *list, uint32_t count) {
    const uint32_t lane = threadIdx.x % WARP;
    for (uint64_t index = warp_of_grid(); index < count; index += warps_of_grid()) {
        const Words copy = load_by_warp(list + index, lane);
        copy_by_warp(copy.word[0], copy.word[1], copy.word[2], lane);
    }
}

// What host and feeder say to each other, in pinned host memory. Each word has one writer.
struct Control {
    // Host: descriptors written so far, modulo 2^32.
    uint32_t tail;
    // Host: not 0 when the feeder is to end.
    uint32_t stop;
    uint32_t padding[14];
    // Feeder: the generation that has ended.
    uint32_t retired;
    // Feeder: the descriptors that it took before it did; written before `retired`.
    uint32_t retired_at;
};

// What the watcher tells the workers, in GPU memory.
struct State {
    // Descriptors that may be taken, modulo 2^32.
    uint32_t published;
    // The generation that takes no more; written after `published`.
    uint32_t closed;
};

__device__ __forceinline__ uint32_t acquire_system(const uint32_t *word) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ void release_system(uint32_t *word, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ __forceinline__ uint32_t acquire_gpu(const uint32_t *word) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ void release_gpu(uint32_t *word, uint32_t value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ __forceinline__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// The first warp: passes the host's tail on, until there has been nothing to do for `idle` ns or it is `life` ns old.
__device__ void watch(Control *control, State *state, uint32_t published, uint32_t generation, uint64_t idle,
                      uint64_t life) {
    const uint64_t start = nanoseconds();
    uint64_t busy = start;
    for (;;) {
        const uint32_t tail = acquire_system(&control->tail);
        const uint64_t now = nanoseconds();
        if (tail != published) {
            published = tail;
            release_gpu(&state->published, published);
            busy = now;
        } else if (now - busy > idle) {
            break;
        }
        if (now - start > life || acquire_system(&control->stop) != 0) {
            break;
        }
    }
    // What has been published is copied to the end; whatever the host adds now waits for the next generation.
    release_gpu(&state->closed, generation);
    control->retired_at = published;
    release_system(&control->retired, generation);
}

// Copies what the host writes to a ring in pinned memory: warp w takes descriptors w, w + W, w + 2W and so on from `head`
// on, and marks each as done by the number that follows its own, modulo 2^32.
extern "C" __global__ void tentpeg_feed(Control *control, const Copy *ring, uint32_t *done, uint32_t mask, State *state,
                                        uint32_t head, uint32_t generation, uint64_t idle, uint64_t life) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t warp = uint32_t(warp_of_grid());
    if (warp == 0) {
        if (lane == 0) {
            watch(control, state, head, generation, idle, life);
        }
        return;
    }
    const uint32_t workers = uint32_t(warps_of_grid()) - 1;
    for (uint32_t index = head + warp - 1;; index += workers) {
        uint32_t open = 1;
        if (lane == 0) {
            for (;;) {
                const bool closed = acquire_gpu(&state->closed) == generation;
                if (int32_t(acquire_gpu(&state->published) - index) > 0) {
                    break;
                }
                if (closed) {
                    open = 0;
                    break;
                }
                __nanosleep(20);
            }
        }
        open = __shfl_sync(0xFFFFFFFF, open, 0);
        if (open == 0) {
            return;
        }
        // A shuffle orders no memory: what the first lane has acquired, the others have behind this.
        __syncwarp();
        const Words copy = load_by_warp(ring + (index & mask), lane);
        copy_by_warp(copy.word[0], copy.word[1], copy.word[2], lane);
        __syncwarp();
        if (lane == 0) {
            // Cumulative: what the other lanes wrote before the barrier is visible to host and devices before the mark.
            release_system(done + (index & mask), index + 1);
        }
    }
}

// A paged KV pool: `planes` addresses, K and V of each layer, from which block b lies `block_stride` * b bytes on.
struct KvPool {
    uint64_t planes;
    uint64_t block_stride;
    uint32_t plane_count;
    uint32_t piece;
};

// Moves blocks of the pool to or from contiguous objects, in which the pieces of the planes follow one another. Nothing is
// converted, so every format keeps its bits.
extern "C" __global__ void tentpeg_kv(KvPool pool, const uint64_t *objects, const uint32_t *blocks, uint32_t count,
                                      uint32_t chunk, uint32_t unpack) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint64_t *planes = reinterpret_cast<const uint64_t *>(pool.planes);
    const uint64_t parts = (uint64_t(pool.piece) + chunk - 1) / chunk;
    const uint64_t units = uint64_t(count) * pool.plane_count * parts;
    for (uint64_t unit = warp_of_grid(); unit < units; unit += warps_of_grid()) {
        const uint64_t part = unit % parts, plane = unit / parts % pool.plane_count;
        const uint64_t object = unit / parts / pool.plane_count;
        const uint64_t offset = part * chunk;
        const uint64_t left = pool.piece - offset, len = left < chunk ? left : chunk;
        const uint64_t paged = load(planes + plane) + pool.block_stride * load(blocks + object) + offset;
        const uint64_t contiguous = load(objects + object) + plane * pool.piece + offset;
        copy_by_warp(unpack ? paged : contiguous, unpack ? contiguous : paged, len, lane);
    }
}

// Writes series of words.
extern "C" __global__ void tentpeg_write_series(const Series *list, uint32_t count) {
    for (uint64_t index = blockIdx.x; index < count; index += gridDim.x) {
        const Words series = load_by_warp(list + index, threadIdx.x % WARP);
        const uint64_t words = series.word[1], first = series.word[2], step = series.word[3];
        uint64_t *to = reinterpret_cast<uint64_t *>(series.word[0]);
        for (uint64_t word = threadIdx.x; word < words; word += blockDim.x) {
            to[word] = first + step * word;
        }
    }
}

// Counts the words that differ from their series, and keeps the least place, from the list's start, of one that does.
extern "C" __global__ void tentpeg_check_series(const Series *list, uint32_t count, unsigned long long *wrong) {
    for (uint64_t index = blockIdx.x; index < count; index += gridDim.x) {
        const Words series = load_by_warp(list + index, threadIdx.x % WARP);
        const uint64_t words = series.word[1], first = series.word[2], step = series.word[3];
        const uint64_t *from = reinterpret_cast<const uint64_t *>(series.word[0]);
        for (uint64_t word = threadIdx.x; word < words; word += blockDim.x) {
            if (load(from + word) != first + step * word) {
                atomicAdd(wrong, 1ull);
                atomicMin(wrong + 1, (unsigned long long)index);
            }
        }
    }
}
