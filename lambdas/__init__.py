"""Entry points of the Lambda functions. Each parses, makes one core call, and shapes the answer."""

import gc
import os

if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    # What is imported stays, so there is no garbage to be found, and to look for it takes a tenth
    # of a cold start. `lambdas.runtime.make_clients` ends this.
    gc.disable()
