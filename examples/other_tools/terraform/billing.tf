# A workflow that charges one customer at a time, guarded by the lock service of service.tf.

data "archive_file" "charge" {
  type        = "zip"
  source_dir  = "${path.module}/../function"
  output_path = "${path.module}/charge.zip"
}

resource "aws_lambda_function" "charge" {
  function_name    = "charge"
  filename         = data.archive_file.charge.output_path
  source_code_hash = data.archive_file.charge.output_base64sha256
  handler          = "charge.handler"
  runtime          = "python3.13"
  timeout          = 30
  role             = aws_iam_role.charge.arn
}

resource "aws_iam_role" "charge" {
  name = "charge"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "lambda.amazonaws.com" } }]
  })
}

resource "aws_iam_role_policy_attachment" "charge" {
  role       = aws_iam_role.charge.name
  policy_arn = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
}

locals {
  functions = {
    AcquireFunctionArn = aws_cloudformation_stack.locks.outputs["AcquireFunctionArn"]
    ReleaseFunctionArn = aws_cloudformation_stack.locks.outputs["ReleaseFunctionArn"]
    ChargeFunctionArn  = aws_lambda_function.charge.arn
  }
}

resource "aws_sfn_state_machine" "billing" {
  name       = "billing"
  role_arn   = aws_iam_role.billing.arn
  definition = templatefile("${path.module}/../billing.asl.json", local.functions)
}

resource "aws_iam_role" "billing" {
  name = "billing"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "sts:AssumeRole", Principal = { Service = "states.amazonaws.com" } }]
  })
}

resource "aws_iam_role_policy" "billing" {
  role = aws_iam_role.billing.name
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = "lambda:InvokeFunction", Resource = values(local.functions) }]
  })
}
