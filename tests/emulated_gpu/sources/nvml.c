// NVML, libnvidia-ml.so.1: the devices of the emulated runtime and constant readings of their sensors.
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <time.h>
#define API __attribute__((visibility("default")))
static int devices(void) { char *s = getenv("NULLCUDA_DEVICES"); return s ? atoi(s) : 1; }
static unsigned long long total(void) { char *s = getenv("NULLCUDA_GIB"); return (unsigned long long)((s ? atof(s) : 80) * (1ull << 30)); }
static int sensors(void) { char *s = getenv("NULLCUDA_SENSORS"); return !s || atoi(s); }
#define SENSOR if (!sensors()) return 3 /* NVML_ERROR_NOT_SUPPORTED */
API int nvmlInit_v2(void) { return 0; } API int nvmlInit(void) { return 0; } API int nvmlInitWithFlags(unsigned f) { return 0; } API int nvmlShutdown(void) { return 0; }
API const char *nvmlErrorString(int e) { return "null"; }
API int nvmlSystemGetDriverVersion(char *s, unsigned n) { snprintf(s, n, "580.0"); return 0; }
API int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13020; return 0; }
API int nvmlDeviceGetCount_v2(unsigned *n) { *n = devices(); return 0; }
API int nvmlDeviceGetCount(unsigned *n) { *n = devices(); return 0; }
API int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { if ((int)i >= devices()) return 2; *h = (void *)(long)(i + 1); return 0; }
static void uuid(int d, char *s) { unsigned char b[16]; for (int i = 0; i < 16; i++) b[i] = 16 * d + i;
  sprintf(s, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]); }
API int nvmlDeviceGetUUID(void *h, char *s, unsigned n) { uuid((long)h - 1, s); return 0; }
API int nvmlDeviceGetHandleByUUID(const char *u, void **h) { char s[64]; for (int d = 0; d < devices(); d++) { uuid(d, s); if (!strcmp(s, u)) { *h = (void *)(long)(d + 1); return 0; } } return 6; }
API int nvmlDeviceGetName(void *h, char *s, unsigned n) { snprintf(s, n, "Emulated GPU"); return 0; }
API int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) { m[0] = total(); m[1] = total() - (1ull << 30); m[2] = 1ull << 30; return 0; }
API int nvmlDeviceGetUtilizationRates(void *h, unsigned *u) { SENSOR; u[0] = 90; u[1] = 40; return 0; }
API int nvmlDeviceGetPowerUsage(void *h, unsigned *p) { SENSOR; *p = 500000; return 0; }
API int nvmlDeviceGetClockInfo(void *h, int t, unsigned *c) { SENSOR; *c = 1980; return 0; }
API int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *r) { SENSOR; *r = 0; return 0; }
API int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *r) { SENSOR; *r = 0; return 0; }
API int nvmlDeviceGetTotalEnergyConsumption(void *h, unsigned long long *e) { SENSOR; struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); *e = t.tv_sec * 500000ull + t.tv_nsec / 2000; return 0; }  // 500 W
API int nvmlDeviceGetViolationStatus(void *h, int p, unsigned long long *v) { SENSOR; v[0] = v[1] = 0; return 0; }
API int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) { *a = 9; *b = 0; return 0; }
API int nvmlDeviceGetHandleByPciBusId_v2(const char *b, void **h) { *h = (void *)1; return 0; }
API int nvmlDeviceGetComputeRunningProcesses(void *h, unsigned *n, void *p) { *n = 0; return 0; }
API int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, void *p) { *n = 0; return 0; }
API int nvmlDeviceGetGpuFabricInfoV(void *h, void *i) { return 3; }
API int nvmlDeviceGetNvLinkRemoteDeviceType(void *h, unsigned l, void *t) { return 3; }
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *h, unsigned l, void *p) { return 3; }
