/* Steps on periodic grids, second order in space, as a careful CUDA programmer writes them in an afternoon. A thread walks
   along the first axis and keeps the lines that it meets again in registers; neighbours along the other axes come from the
   caches. The last axis is contiguous. Coefficients carry the time step. */

#define WRAP_DOWN(i, n) ((i) == 0 ? (n) - 1 : (i) - 1)
#define WRAP_UP(i, n) ((i) == (n) - 1 ? 0 : (i) + 1)

/* Forward Euler of du/dt = kappa lap(u); a thread takes `length` rows of its column. */
extern "C" __global__ void heat2(const float *u, float *next, int n, int m, float dx, float dy, int length)
{
    const int j = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * length;
    if (j >= m)
        return;
    const int left = WRAP_DOWN(j, m), right = WRAP_UP(j, m);
    float below = u[(long long)WRAP_DOWN(first, n) * m + j], here = u[(long long)first * m + j];
    for (int i = first; i < first + length && i < n; i++) {
        const float *row = u + (long long)i * m;
        const float above = u[(long long)WRAP_UP(i, n) * m + j];
        next[(long long)i * m + j] = here + dx * (above - 2 * here + below) + dy * (row[right] - 2 * here + row[left]);
        below = here;
        here = above;
    }
}

extern "C" __global__ void heat3(const float *u, float *next, int n, int m, int l, float dx, float dy, float dz,
                                 int length)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    const int first = blockIdx.z * length;
    if (k >= l || j >= m)
        return;
    const long long plane = (long long)m * l, own = (long long)j * l + k;
    const long long before = (long long)WRAP_DOWN(j, m) * l + k, after = (long long)WRAP_UP(j, m) * l + k;
    const long long left = (long long)j * l + WRAP_DOWN(k, l), right = (long long)j * l + WRAP_UP(k, l);
    float below = u[WRAP_DOWN(first, n) * plane + own], here = u[first * plane + own];
    for (int i = first; i < first + length && i < n; i++) {
        const float *sheet = u + i * plane;
        const float above = u[WRAP_UP(i, n) * plane + own];
        next[i * plane + own] = here + dx * (above - 2 * here + below) + dy * (sheet[after] - 2 * here + sheet[before])
                              + dz * (sheet[right] - 2 * here + sheet[left]);
        below = here;
        here = above;
    }
}

/* Leapfrog of dv/dt = -grad p on lower faces, dp/dt = -div v at centres: a kick of the velocity, then a drift. */
extern "C" __global__ void kick3(const float *p, float *vx, float *vy, float *vz, int n, int m, int l, float dx, float dy,
                                 float dz, int length)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    const int first = blockIdx.z * length;
    if (k >= l || j >= m)
        return;
    const long long plane = (long long)m * l, own = (long long)j * l + k;
    const long long before = (long long)WRAP_DOWN(j, m) * l + k, left = (long long)j * l + WRAP_DOWN(k, l);
    float below = p[WRAP_DOWN(first, n) * plane + own];
    for (int i = first; i < first + length && i < n; i++) {
        const float *sheet = p + i * plane;
        const float here = sheet[own];
        vx[i * plane + own] -= dx * (here - below);
        vy[i * plane + own] -= dy * (here - sheet[before]);
        vz[i * plane + own] -= dz * (here - sheet[left]);
        below = here;
    }
}

extern "C" __global__ void drift3(float *p, const float *vx, const float *vy, const float *vz, int n, int m, int l,
                                  float dx, float dy, float dz, int length)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    const int first = blockIdx.z * length;
    if (k >= l || j >= m)
        return;
    const long long plane = (long long)m * l, own = (long long)j * l + k;
    const long long after = (long long)WRAP_UP(j, m) * l + k, right = (long long)j * l + WRAP_UP(k, l);
    float here = vx[first * plane + own];
    for (int i = first; i < first + length && i < n; i++) {
        const float above = vx[WRAP_UP(i, n) * plane + own];
        const float *y = vy + i * plane, *z = vz + i * plane;
        p[i * plane + own] -= dx * (above - here) + dy * (y[after] - y[own]) + dz * (z[right] - z[own]);
        here = above;
    }
}
