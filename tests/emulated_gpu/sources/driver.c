// CUDA driver, libcuda.so.1, as far as PyTorch asks it.
#include <string.h>
#define API __attribute__((visibility("default")))
int nothing() { return 0; }
static int ctx_state(int d, unsigned *f, int *a) { *f = 0; *a = 1; return 0; }
API int cuInit(unsigned f) { return 0; }
API int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *a) { return ctx_state(d, f, a); }
extern int cuCtxGetCurrent();
API int cuGetProcAddress_v2(const char *n, void **p, int v, unsigned long long f, int *s) { *p = !strcmp(n, "cuDevicePrimaryCtxGetState") ? (void *)ctx_state : !strcmp(n, "cuCtxGetCurrent") ? (void *)cuCtxGetCurrent : (void *)nothing; if (s) *s = 0; return 0; }
API int cuGetProcAddress(const char *n, void **p, int v, unsigned long long f) { return cuGetProcAddress_v2(n, p, v, f, 0); }
API int cuDriverGetVersion(int *v) { *v = 13020; return 0; }
API int cuDeviceGetCount(int *n) { *n = 1; return 0; }
API int cuGetErrorString(int e, const char **s) { *s = "null"; return 0; }
#include "driver_calls.h"
