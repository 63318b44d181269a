#!/usr/bin/env python3
"""Print what zarr-python reads of arrays: `read_arrays.py STORE ARRAY...`

Each array is opened by its path, so a directory that lists nothing does as well.
"""
import hashlib
import os
import sys
import warnings

import numpy as np
import zarr

warnings.simplefilter("ignore")
for path in sys.argv[2:]:
    array = zarr.open_array(os.path.join(sys.argv[1], path), mode="r")
    values = np.asarray(array[...])
    data = repr(values.tolist()).encode() if values.dtype.kind in "OT" else values.tobytes()
    print(path, array.shape, array.dtype, dict(array.attrs), hashlib.sha256(data).hexdigest())
