// Invokes the functions of the lock service by the AWS SDK for JavaScript, version 3.

import { InvokeCommand, LambdaClient } from "@aws-sdk/client-lambda";
import type { Call } from "./locks.ts";

/** The names or ARNs of the functions: outputs of the stack, or parameters of the Parameter Store. */
export interface FunctionNames {
  acquire: string;
  heartbeat: string;
  release: string;
}

export function lockFunctions(names: FunctionNames, client = new LambdaClient({})): Call {
  return async (operation, request) => {
    const command = new InvokeCommand({ FunctionName: names[operation], Payload: JSON.stringify(request) });
    const reply = await client.send(command);
    const answer = JSON.parse(new TextDecoder().decode(reply.Payload));
    if (reply.FunctionError === undefined) return answer;
    throw Object.assign(new Error(answer.errorMessage), { name: answer.errorType });
  };
}
