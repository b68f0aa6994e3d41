// CUDA runtime, cuBLAS and NCCL without a GPU. Device memory is the host's, copies copy, kernels do nothing; streams,
// events and captures keep their rules; ranks exchange messages through shared memory. To be preloaded.
#define _GNU_SOURCE
#include <driver_types.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <dlfcn.h>
#define API __attribute__((visibility("default")))
typedef struct { unsigned x, y, z; } D3;
typedef struct Stream { int dev; int capturing; unsigned long long capid; int mode; pthread_t by; int origin; } Stream;
typedef struct Event { double at; unsigned long long capid; int recorded; int dev; } Event;
typedef struct Graph { size_t nodes; } Graph;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static __thread int device; static __thread int exchange; // capture mode of this thread
static __thread int last_error;
static Stream defaults[16]; static Graph graphs[4096]; static int ngraphs;
static int capturing; static Stream *cap; static int invalid;
static size_t used[16]; static char *base[16]; static size_t top[16];
#define REGION (1ull << 40)
static struct { long launches, captured, stray, syncs, unsafe, replays, mallocs, h2d_pageable, collectives; } st;
API long *nullcuda_stats(void) { return (long *)&st; }
static int devices(void) { char *v = getenv("CUDA_VISIBLE_DEVICES"); if (v) { int n = *v != 0; for (; *v; v++) n += *v == ','; return n; } char *s = getenv("NULLCUDA_DEVICES"); return s ? atoi(s) : 1; }
static int physical(int d) { char *v = getenv("CUDA_VISIBLE_DEVICES"); if (!v) return d; for (; d; d--) { v = strchr(v, ','); if (!v) return 0; v++; } return atoi(v); }
static size_t total(void) { char *s = getenv("NULLCUDA_GIB"); return (size_t)((s ? atof(s) : 80) * (1ull << 30)); }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec / 1e6; }
static int logging(void) { static int l = -1; if (l < 0) l = getenv("NULLCUDA_LOG") != 0; return l; }
static int fail(int e) { last_error = e; return e; }
static Stream *S(void *s) { return (uintptr_t)s <= 2 ? &defaults[device] : (Stream *)s; }
// What must not be called while a stream captures.
static int unsafe_call(const char *what) {
  if (!capturing || exchange == 2) return 0;
  if (cap->mode == 0 || (cap->mode == 1 && pthread_equal(cap->by, pthread_self()))) {
    st.unsafe++; invalid = 1; if (logging()) fprintf(stderr, "nullcuda: %s while capturing\n", what);
    return fail(900);
  }
  return 0;
}
static int broken; API void nullcuda_break(int e) { broken = e; }
static int sync_call(const char *what) { st.syncs++; if (broken) return fail(broken); return unsafe_call(what); }
static int work(void *s, const char *what) { if (broken) { last_error = broken; return broken; }
  Stream *x = S(s);
  if (x->capturing) { st.captured++; graphs[ngraphs].nodes++; }
  else { st.launches++; if (capturing) { st.stray++; if (logging()) fprintf(stderr, "nullcuda: %s outside of the capture\n", what); } }
  return 0;
}
// --- devices
API int cudaGetDeviceCount(int *n) { *n = devices(); return *n ? 0 : fail(100); }
API int cudaGetDevice(int *d) { *d = device; return 0; }
API int cudaSetDevice(int d) { if (d < 0 || d >= devices()) return fail(101); device = d; return 0; }
API int cudaDriverGetVersion(int *v) { *v = 13020; return 0; }
API int cudaRuntimeGetVersion(int *v) { *v = 13020; return 0; }
API int cudaDeviceSynchronize(void) { return sync_call("cudaDeviceSynchronize"); }
API int cudaDeviceGetStreamPriorityRange(int *l, int *g) { if (l) *l = 0; if (g) *g = -5; return 0; }
API int cudaDeviceCanAccessPeer(int *c, int a, int b) { *c = a != b; return 0; }
API int cudaDeviceGetDefaultMemPool(void **p, int d) { *p = (void *)0x1; return 0; }
API int cudaDeviceGetPCIBusId(char *s, int n, int d) { snprintf(s, n, "0000:%02x:00.0", d + 1); return 0; }
API int cudaMemGetInfo(size_t *f, size_t *t) { *t = total(); *f = *t - used[device]; return 0; }
API int cudaDeviceGetAttribute(int *v, int a, int d) {
  switch (a) { case 1: *v = 1024; break; case 2: case 3: *v = 1024; break; case 4: *v = 64; break; case 5: *v = 2147483647; break;
    case 6: case 7: *v = 65535; break; case 8: *v = 49152; break; case 10: *v = 32; break; case 12: *v = 65536; break;
    case 16: *v = 132; break; case 39: *v = 2048; break; case 75: *v = 9; break; case 76: *v = 0; break;
    case 81: *v = 233472; break; case 82: *v = 65536; break; case 97: *v = 232448; break; case 106: *v = 32; break; default: *v = 0; }
  return 0; }
API int cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
  memset(p, 0, sizeof *p); snprintf(p->name, 256, "Emulated GPU"); for (int i = 0; i < 16; i++) p->uuid.bytes[i] = (char)(16 * physical(d) + i);
  p->totalGlobalMem = total(); p->sharedMemPerBlock = 49152; p->regsPerBlock = 65536; p->warpSize = 32; p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64; p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536; p->major = 9; p->minor = 0; p->textureAlignment = 512; p->multiProcessorCount = 132; p->l2CacheSize = 52428800;
  p->maxThreadsPerMultiProcessor = 2048; p->sharedMemPerMultiprocessor = 233472; p->regsPerMultiprocessor = 65536; p->sharedMemPerBlockOptin = 232448;
  p->maxBlocksPerMultiProcessor = 32; p->concurrentKernels = 1; p->unifiedAddressing = 1; p->streamPrioritiesSupported = 1; p->pciBusID = d + 1;
  p->asyncEngineCount = 3; p->canMapHostMemory = 1; p->cooperativeLaunch = 1; return 0; }
// --- errors
API int cudaGetLastError(void) { int e = last_error; last_error = 0; return e; }
API int cudaPeekAtLastError(void) { return last_error; }
API const char *cudaGetErrorString(int e) { return e == 700 ? "an illegal memory access was encountered" : e == 2 ? "out of memory" : e == 900 ? "operation not permitted when stream is capturing" : e == 901 ? "operation failed due to a previous error during capture" : e == 904 ? "capturing stream has unjoined work" : "null CUDA error"; }
API const char *cudaGetErrorName(int e) { return e == 700 ? "an illegal memory access was encountered" : e == 2 ? "cudaErrorMemoryAllocation" : "cudaErrorNull"; }
// --- memory
API int cudaMalloc(void **p, size_t n) {
  if (broken) return fail(broken); int e = unsafe_call("cudaMalloc"); if (e) return e;
  pthread_mutex_lock(&mu);
  n = (n + 4095 + 4096) & ~4095ull;
  if (!base[device]) { base[device] = mmap((void *)(0x200000000000ull + device * REGION), REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }
  if (used[device] + n > total() || top[device] + n > REGION) { pthread_mutex_unlock(&mu); *p = 0; return fail(2); }
  char *at = base[device] + top[device]; top[device] += (n + 0x1fffff) & ~0x1fffffull;
  if (mmap(at, n, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED) { pthread_mutex_unlock(&mu); return fail(2); }
  // the size is kept in the last 8 bytes of the added page
  *(size_t *)(at + n - 8) = n; // found again by a table below
  extern void remember(void *, size_t, int); remember(at, n, device);
  used[device] += n; st.mallocs++; *p = at; pthread_mutex_unlock(&mu); return 0; }
#define SLOTS 65536
static struct { void *p; size_t n; int d; } slots[SLOTS];
void remember(void *p, size_t n, int d) { for (size_t i = ((uintptr_t)p >> 21) % SLOTS;; i = (i + 1) % SLOTS) if (!slots[i].p || slots[i].p == (void *)1) { slots[i].p = p; slots[i].n = n; slots[i].d = d; return; } }
API int cudaFree(void *p) {
  if (!p) return 0; if (broken) return fail(broken); int e = unsafe_call("cudaFree"); if (e) return e;
  pthread_mutex_lock(&mu);
  for (size_t i = ((uintptr_t)p >> 21) % SLOTS, k = 0; k < SLOTS; k++, i = (i + 1) % SLOTS) if (slots[i].p == p) {
    mmap(p, slots[i].n, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); // a later use faults
    used[slots[i].d] -= slots[i].n; slots[i].p = (void *)1; break; }
  pthread_mutex_unlock(&mu); return 0; }
API int cudaMallocAsync(void **p, size_t n, void *s) { return cudaMalloc(p, n); }
API int cudaFreeAsync(void *p, void *s) { return cudaFree(p); }
API int cudaMallocManaged(void **p, size_t n, unsigned f) { return cudaMalloc(p, n); }
static struct { char *p; size_t n; } pinned[4096]; static int npinned;
static int host_alloc(void **p, size_t n) { int e = unsafe_call("cudaHostAlloc"); if (e) return e; if (posix_memalign(p, 4096, n ? n : 1)) return fail(2);
  pthread_mutex_lock(&mu); int i = 0; while (i < npinned && pinned[i].p) i++; if (i == npinned) npinned++; pinned[i].p = *p; pinned[i].n = n; pthread_mutex_unlock(&mu); return 0; }
API int cudaHostAlloc(void **p, size_t n, unsigned f) { return host_alloc(p, n); }
API int cudaMallocHost(void **p, size_t n) { return host_alloc(p, n); }
API int cudaFreeHost(void *p) { for (int i = 0; i < npinned; i++) if (pinned[i].p == p) pinned[i].p = 0; free(p); return 0; }
API int cudaHostRegister(void *p, size_t n, unsigned f) { return 0; }
API int cudaHostUnregister(void *p) { return 0; }
static int on_device(const void *p) { uintptr_t a = (uintptr_t)p; return a >= 0x200000000000ull && a < 0x200000000000ull + 16 * REGION; }
static int is_pinned(const void *p) { for (int i = 0; i < npinned; i++) if (pinned[i].p && (char *)p >= pinned[i].p && (char *)p < pinned[i].p + pinned[i].n) return 1; return 0; }
API int cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) { memset(a, 0, sizeof *a); a->device = -2;
  if (on_device(p)) { a->type = cudaMemoryTypeDevice; a->device = ((uintptr_t)p - 0x200000000000ull) / REGION; a->devicePointer = (void *)p; }
  else if (is_pinned(p)) { a->type = cudaMemoryTypeHost; a->device = device; a->hostPointer = a->devicePointer = (void *)p; } return 0; }
static void check_kind(void *d, const void *s) { if (on_device(d) && !on_device(s) && !is_pinned(s)) st.h2d_pageable++; }
API int cudaMemcpyAsync(void *d, const void *s, size_t n, int k, void *q) { work(q, "memcpy"); check_kind(d, s); memmove(d, s, n); return 0; }
API int cudaMemcpy(void *d, const void *s, size_t n, int k) { int e = sync_call("cudaMemcpy"); if (e) return e; memmove(d, s, n); return 0; }
API int cudaMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, void *q) { work(q, "memcpyPeer"); memmove(d, s, n); return 0; }
API int cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, int k, void *q) { work(q, "memcpy2D"); for (size_t i = 0; i < h; i++) memmove((char *)d + i * dp, (char *)s + i * sp, w); return 0; }
static void set(void *p, int v, size_t n) { if (!v && n > 1 << 20) { uintptr_t a = ((uintptr_t)p + 4095) & ~4095ull, b = ((uintptr_t)p + n) & ~4095ull; memset(p, 0, a - (uintptr_t)p); madvise((void *)a, b - a, MADV_DONTNEED); memset((void *)b, 0, (uintptr_t)p + n - b); } else memset(p, v, n); }
API int cudaMemsetAsync(void *p, int v, size_t n, void *q) { work(q, "memset"); set(p, v, n); return 0; }
API int cudaMemset(void *p, int v, size_t n) { set(p, v, n); return 0; }
API int cudaMemcpyToSymbol(const void *s, const void *p, size_t n, size_t o, int k) { return 0; }
API int cudaGetSymbolAddress(void **p, const void *s) { return cudaMalloc(p, 4096); }
API int cudaMemPoolGetAttribute(void *p, int a, void *v) { *(uint64_t *)v = 0; return 0; }
// --- streams, events
static int stream(void **s) { Stream *x = calloc(1, sizeof *x); x->dev = device; *s = x; return 0; }
API int cudaStreamCreate(void **s) { return stream(s); }
API int cudaStreamCreateWithFlags(void **s, unsigned f) { return stream(s); }
API int cudaStreamCreateWithPriority(void **s, unsigned f, int p) { return stream(s); }
API int cudaStreamGetPriority(void *s, int *p) { *p = 0; return 0; }
API int cudaStreamSynchronize(void *s) { st.syncs++; if (broken) return fail(broken); if (S(s)->capturing) { invalid = 1; st.unsafe++; return fail(900); } return unsafe_call("cudaStreamSynchronize"); }
API int cudaStreamQuery(void *s) { return unsafe_call("cudaStreamQuery"); }
static int event(void **e) { Event *x = calloc(1, sizeof *x); x->dev = device; *e = x; return 0; }
API int cudaEventCreate(void **e) { return event(e); }
API int cudaEventCreateWithFlags(void **e, unsigned f) { return event(e); }
API int cudaEventDestroy(void *e) { free(e); return 0; }
API int cudaEventRecordWithFlags(void *e, void *s, unsigned f) { Event *x = e; Stream *q = S(s); x->at = now(); x->recorded = 1; x->capid = q->capturing ? q->capid : 0; return 0; }
API int cudaEventRecord(void *e, void *s) { return cudaEventRecordWithFlags(e, s, 0); }
API int cudaEventQuery(void *e) { if (((Event *)e)->capid && capturing) return fail(907); return unsafe_call("cudaEventQuery"); }
API int cudaEventSynchronize(void *e) { st.syncs++; if (broken) return fail(broken); return unsafe_call("cudaEventSynchronize"); }
API int cudaEventElapsedTime(float *ms, void *a, void *b) { Event *x = a, *y = b; if (!x->recorded || !y->recorded) return fail(400); *ms = (float)(y->at - x->at); return 0; }
API int cudaStreamWaitEvent(void *s, void *e, unsigned f) { Stream *q = S(s); Event *x = e;
  if (x->capid && capturing && x->capid == cap->capid && !q->capturing) { q->capturing = 1; q->capid = x->capid; } // forked into the capture
  else if (!x->capid && x->recorded && q->capturing && capturing) { st.stray++; if (logging()) fprintf(stderr, "nullcuda: capture waits for an event from outside\n"); invalid = 1; return fail(905); }
  return 0; }
API int cudaStreamAddCallback(void *s, void (*f)(void *, int, void *), void *u, unsigned g) { f(s, 0, u); return 0; }
API int cudaLaunchHostFunc(void *s, void (*f)(void *), void *u) { f(u); return 0; }
// --- graphs
static unsigned long long ids;
API int cudaThreadExchangeStreamCaptureMode(int *m) { int o = exchange; exchange = *m; *m = o; return 0; }
API int cudaStreamBeginCapture(void *s, int mode) { Stream *x = S(s); if ((uintptr_t)s <= 2) return fail(900); if (capturing) return fail(900);
  capturing = 1; cap = x; invalid = 0; x->capturing = x->origin = 1; x->capid = ++ids; x->mode = mode; x->by = pthread_self(); graphs[ngraphs].nodes = 0; return 0; }
API int cudaStreamEndCapture(void *s, void **g) { Stream *x = S(s); if (!x->capturing) return fail(901); capturing = 0; x->capturing = 0; *g = 0; if (invalid) return fail(901); *g = &graphs[ngraphs++]; return 0; }
API int cudaStreamIsCapturing(void *s, int *st_) { *st_ = (uintptr_t)s > 2 && S(s)->capturing && capturing ? (invalid ? 2 : 1) : 0; return 0; }
API int cudaStreamGetCaptureInfo(void *s, int *st_, unsigned long long *id, void **g, const void ***d, const void **ed, size_t *n) { cudaStreamIsCapturing(s, st_); if (id) *id = S(s)->capid; if (g) *g = &graphs[ngraphs]; if (d) *d = 0; if (n) *n = 0; return 0; }
API int cudaGraphInstantiate(void **e, void *g, unsigned long long f) { *e = g; return 0; }
API int cudaGraphInstantiateWithFlags(void **e, void *g, unsigned long long f) { *e = g; return 0; }
API int cudaGraphGetNodes(void *g, void **n, size_t *c) { *c = ((Graph *)g)->nodes; return 0; }
API int cudaGraphLaunch(void *e, void *s) { st.replays++; return 0; }
// --- kernels
static __thread struct { D3 g, b; size_t m; void *s; } pushed;
API void **__cudaRegisterFatBinary(void *b) { static void *h; return &h; }
API unsigned __cudaPushCallConfiguration(D3 g, D3 b, size_t m, void *s) { pushed.g = g; pushed.b = b; pushed.m = m; pushed.s = s; return 0; }
API int __cudaPopCallConfiguration(D3 *g, D3 *b, size_t *m, void *s) { *g = pushed.g; *b = pushed.b; *m = pushed.m; *(void **)s = pushed.s; return 0; }
API int __cudaGetKernel(void **k, const void *f) { *k = (void *)f; return 0; }
static int launch(D3 g, D3 b, void *s) { if (!g.x || !g.y || !g.z || !b.x || b.x * b.y * b.z > 1024 || g.y > 65535 || g.z > 65535) { if (logging()) fprintf(stderr, "nullcuda: bad launch %u %u %u, %u %u %u\n", g.x, g.y, g.z, b.x, b.y, b.z); return fail(9); } return work(s, "kernel"); }
API int cudaLaunchKernel(const void *f, D3 g, D3 b, void **a, size_t m, void *s) { return launch(g, b, s); }
API int __cudaLaunchKernel(void *f, D3 g, D3 b, void **a, size_t m, void *s) { return launch(g, b, s); }
API int cudaLaunchKernelExC(const void *c, const void *f, void **a) { const struct { D3 g, b; size_t m; void *s; } *x = c; return launch(x->g, x->b, x->s); }
API int cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) { memset(a, 0, sizeof *a); a->maxThreadsPerBlock = 1024; a->numRegs = 32; a->ptxVersion = a->binaryVersion = 90; a->maxDynamicSharedSizeBytes = 49152; return 0; }
API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t m) { *n = 2; return 0; }
API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t m, unsigned g) { *n = 2; return 0; }
// --- driver
static int nothing() { return 0; }
static int ctx_state(int d, unsigned *f, int *a) { *f = 0; *a = 1; return 0; }
API int cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned v, unsigned long long g, int *r) { *f = strcmp(name, "cuDevicePrimaryCtxGetState") ? (void *)nothing : (void *)ctx_state; if (r) *r = 0; return 0; }
// --- cuBLAS, cuBLASLt: nothing is computed
API int cublasCreate_v2(void **h) { *h = (void *)0x10; return 0; }
API int cublasLtCreate(void **h) { *h = (void *)0x10; return 0; }
API int cublasGetPointerMode_v2(void *h, int *m) { *m = 0; return 0; }
API int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *e, void *p, int asked, char *results, int *n) { memset(results, 0, 96); *n = 1; return 0; }
// --- NCCL among processes of this machine, through shared memory; everything is done when it is asked for
#include <fcntl.h>
#include <unistd.h>
#include <sys/stat.h>
#define BOX (16ull << 20)
typedef struct { volatile int arrived, round; volatile int full[16][16]; } Head;
typedef struct { int n, r, local; char name[64]; Head *h; char *area; } Comm; // area: a box for each rank, then for each pair
typedef struct { char x[128]; } Id;
static const int SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static void pause_(double *t) { usleep(50); if (now() - *t > 60e3) { fprintf(stderr, "null NCCL: waited for 60 s\n"); abort(); } }
static void barrier(Comm *c) { double t = now(); int round = c->h->round; if (__sync_add_and_fetch(&c->h->arrived, 1) == c->n) { c->h->arrived = 0; __sync_synchronize(); c->h->round++; } else while (c->h->round == round) pause_(&t); }
API int ncclGetVersion(int *v) { *v = 23007; return 0; }
API const char *ncclGetErrorString(int e) { return "null NCCL"; }
API const char *ncclGetLastError(void *c) { return ""; }
API int ncclGetUniqueId(char *id) { memset(id, 0, 128); snprintf(id, 64, "/nullnccl-%d-%llx", getpid(), (unsigned long long)(now() * 1e6)); return 0; }
static int comm(void **out, int n, int r, Id id) { Comm *c = calloc(1, sizeof *c); c->n = n; c->r = r; memcpy(c->name, id.x, 64); *out = c; if (n == 1) return 0;
  size_t size = 65536 + BOX * (n + n * n); int f = shm_open(c->name, O_RDWR | O_CREAT, 0600); ftruncate(f, size); char *m = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0); close(f); c->h = (Head *)m; c->area = m + 65536; barrier(c); shm_unlink(c->name); return 0; }
API int ncclCommInitRank(void **c, int n, Id id, int r) { return comm(c, n, r, id); }
API int ncclCommInitRankConfig(void **c, int n, Id id, int r, void *cfg) { return comm(c, n, r, id); }
API int ncclCommInitRankScalable(void **c, int n, int r, int m, Id *ids, void *cfg) { return comm(c, n, r, ids[0]); }
API int ncclCommInitAll(void **c, int n, const int *d) { for (int r = 0; r < n; r++) { Comm *x = calloc(1, sizeof *x); x->n = n; x->r = r; x->local = 1; c[r] = x; } return 0; }
API int ncclCommGetAsyncError(void *c, int *e) { *e = 0; return 0; }
API int ncclCommCount(void *c, int *n) { *n = ((Comm *)c)->n; return 0; }
API int ncclCommUserRank(void *c, int *r) { *r = ((Comm *)c)->r; return 0; }
static float half(uint16_t h, int t) { uint32_t u; float f; if (t == 9) { u = (uint32_t)h << 16; memcpy(&f, &u, 4); return f; } _Float16 x; memcpy(&x, &h, 2); return x; }
static uint16_t to_half(float f, int t) { uint32_t u; memcpy(&u, &f, 4); if (t == 9) return (u + 0x7fff + ((u >> 16) & 1)) >> 16; _Float16 x = f; uint16_t h; memcpy(&h, &x, 2); return h; }
#define OP(a, b) (o == 0 || o == 4 ? a + b : o == 1 ? a * b : o == 2 ? (a > b ? a : b) : (a < b ? a : b))
static void add(char *d, const char *s, size_t n, int t, int o) { for (size_t i = 0; i < n; i++) switch (t) {
  case 7: ((float *)d)[i] = OP(((float *)d)[i], ((float *)s)[i]); break; case 8: ((double *)d)[i] = OP(((double *)d)[i], ((double *)s)[i]); break;
  case 4: case 5: ((int64_t *)d)[i] = OP(((int64_t *)d)[i], ((int64_t *)s)[i]); break; case 2: case 3: ((int *)d)[i] = OP(((int *)d)[i], ((int *)s)[i]); break;
  case 6: case 9: ((uint16_t *)d)[i] = to_half(OP(half(((uint16_t *)d)[i], t), half(((uint16_t *)s)[i], t)), t); break; default: ((uint8_t *)d)[i] = OP(((uint8_t *)d)[i], ((uint8_t *)s)[i]); } }
static char *box(Comm *c, int r) { return c->area + BOX * r; }
static char *pair(Comm *c, int a, int b) { return c->area + BOX * (c->n + a * c->n + b); }
static int too_large(size_t n) { if (n > BOX) { fprintf(stderr, "null NCCL: message of %zu bytes\n", n); abort(); } return 0; }
// what each gives lies in its box between two barriers
static void give(Comm *c, const void *s, size_t bytes) { too_large(bytes); memcpy(box(c, c->r), s, bytes); __sync_synchronize(); barrier(c); }
// of one process with several devices: in a group, done at its end
static __thread struct { int reduces; const void *s; void *d; size_t n; int t, o, root; Comm *c; } local[64]; static __thread int locals;
static int later(int reduces, const void *s, void *d, size_t n, int t, int o, int root, Comm *c) { local[locals].reduces = reduces; local[locals].s = s; local[locals].d = d; local[locals].n = n; local[locals].t = t; local[locals].o = o; local[locals].root = root; local[locals++].c = c; return 0; }
static void do_locals(void) { for (int i = 0; i < locals; i++) if (local[i].c->r == local[i].root) { int first = 1; char *sum = 0; size_t b = local[i].n * SIZES[local[i].t];
    for (int k = 0; k < locals; k++) if (!local[i].reduces) { if (local[k].d != local[i].s) memcpy(local[k].d, local[i].s, b); }
      else { if (!sum) sum = calloc(1, b); if (first) memcpy(sum, local[k].s, b); else add(sum, local[k].s, local[k].n, local[k].t, local[k].o); first = 0; }
    if (sum) { memcpy(local[i].d, sum, b); free(sum); } break; } locals = 0; }
static int did(void *q) { st.collectives++; return work(q, "nccl"); }
API int ncclAllReduce(const void *s, void *d, size_t n, int t, int o, void *cc, void *q) { Comm *c = cc; did(q); size_t b = n * SIZES[t]; if (c->n == 1) { if (d != s) memmove(d, s, b); return 0; }
  give(c, s, b); memcpy(d, box(c, 0), b); for (int r = 1; r < c->n; r++) add(d, box(c, r), n, t, o); if (o == 4 && t == 7) for (size_t i = 0; i < n; i++) ((float *)d)[i] /= c->n; barrier(c); return 0; }
API int ncclBroadcast(const void *s, void *d, size_t n, int t, int root, void *cc, void *q) { Comm *c = cc; did(q); if (c->local) return later(0, s, d, n, t, 0, root, c); size_t b = n * SIZES[t]; if (c->n == 1) { if (d != s) memmove(d, s, b); return 0; }
  give(c, c->r == root ? s : d, c->r == root ? b : 0); memcpy(d, box(c, root), b); barrier(c); return 0; }
API int ncclBcast(void *d, size_t n, int t, int r, void *c, void *q) { return ncclBroadcast(d, d, n, t, r, c, q); }
API int ncclReduce(const void *s, void *d, size_t n, int t, int o, int root, void *cc, void *q) { Comm *c = cc; if (c->local) return later(1, s, d, n, t, o, root, c); char *x = malloc(n * SIZES[t]); ncclAllReduce(s, x, n, t, o, cc, q); if (c->r == root) memcpy(d, x, n * SIZES[t]); free(x); return 0; }
API int ncclAllGather(const void *s, void *d, size_t n, int t, void *cc, void *q) { Comm *c = cc; did(q); size_t b = n * SIZES[t]; if (c->n == 1) { if (d != s) memmove(d, s, b); return 0; }
  give(c, s, b); for (int r = 0; r < c->n; r++) memcpy((char *)d + r * b, box(c, r), b); barrier(c); return 0; }
API int ncclReduceScatter(const void *s, void *d, size_t n, int t, int o, void *cc, void *q) { Comm *c = cc; did(q); size_t b = n * SIZES[t]; if (c->n == 1) { if (d != s) memmove(d, s, b); return 0; }
  give(c, s, b * c->n); char *x = malloc(b); memcpy(x, box(c, 0) + c->r * b, b); for (int r = 1; r < c->n; r++) add(x, box(c, r) + c->r * b, n, t, o); memcpy(d, x, b); free(x); barrier(c); return 0; }
static __thread struct { int sends; const void *s; void *d; size_t b; int peer; Comm *c; } queue[256]; static __thread int queued, depth;
static void send_(Comm *c, const void *s, size_t b, int p) { double t = now(); too_large(b); while (c->h->full[c->r][p]) pause_(&t); memcpy(pair(c, c->r, p), s, b); __sync_synchronize(); c->h->full[c->r][p] = 1; }
static void recv_(Comm *c, void *d, size_t b, int p) { double t = now(); while (!c->h->full[p][c->r]) pause_(&t); __sync_synchronize(); memcpy(d, pair(c, p, c->r), b); __sync_synchronize(); c->h->full[p][c->r] = 0; }
API int ncclGroupStart(void) { depth++; return 0; }
API int ncclGroupEnd(void) { if (--depth) return 0; do_locals(); for (int k = 1; k >= 0; k--) for (int i = 0; i < queued; i++) if (queue[i].sends == k) k ? send_(queue[i].c, queue[i].s, queue[i].b, queue[i].peer) : recv_(queue[i].c, queue[i].d, queue[i].b, queue[i].peer); queued = 0; return 0; }
API int ncclSend(const void *s, size_t n, int t, int p, void *c, void *q) { did(q); if (!depth) { send_(c, s, n * SIZES[t], p); return 0; } queue[queued].sends = 1; queue[queued].s = s; queue[queued].b = n * SIZES[t]; queue[queued].peer = p; queue[queued++].c = c; return 0; }
API int ncclRecv(void *d, size_t n, int t, int p, void *c, void *q) { did(q); if (!depth) { recv_(c, d, n * SIZES[t], p); return 0; } queue[queued].sends = 0; queue[queued].d = d; queue[queued].b = n * SIZES[t]; queue[queued].peer = p; queue[queued++].c = c; return 0; }
#include "other_calls.h" // all other calls succeed and do nothing; made by libraries.py
